import * as z from 'zod';
import { ARCHITECTURES, type Architecture } from './gpu-architecture.ts';

const positive = z.number().finite().positive();

/** One row of `data/gpus.json`: data-sheet units. */
const gpuRowSchema = z.strictObject({
  id: z.string().min(1).max(64),
  class: z.string().min(1).max(32),
  architecture: z.enum(ARCHITECTURES).optional(),
  bf16_tflops: positive,
  fp8_tflops: positive.optional(),
  fp4_tflops: positive.optional(),
  int8_tops: positive.optional(),
  bandwidth_gbs: positive,
  memory_gb: positive,
  /** A name in the calibration's `links`. */
  link: z.string().min(1).max(32),
  link_gbs: positive,
  /** GPUs that the link joins; all of a node's unless said. */
  link_domain: z.number().int().min(1).max(72).optional(),
  /** GPUs of a board without a switch, each wired to each other: a pair has only the wires between the two. */
  link_mesh: z.number().int().min(2).max(72).optional(),
  pcie_gbs: positive.optional(),
  watts: positive,
  usd_hour: z.number().finite().nonnegative(),
  gpus_per_node: z.number().int().min(1).max(72),
  source: z.string().max(256),
});
export const gpuFileSchema = z.object({ gpus: z.array(gpuRowSchema).max(1000) });

/** A kind of GPU, in SI units. */
export interface Gpu {
  id: string;
  /** Name in shared/hardware: what agents publish. */
  class: string;
  /** What engines can run on it follows from this; undefined: not known, nothing is refused. */
  architecture: Architecture | undefined;
  /** Dense peak, FLOP/s. fp8, int8 and fp4 are undefined where the silicon has none: weights are then widened before the product. */
  bf16: number;
  fp8: number | undefined;
  int8: number | undefined;
  fp4: number | undefined;
  /** Bytes/s. */
  bandwidth: number;
  /** Bytes. */
  memory: number;
  link: string;
  /** Both directions together, bytes/s. */
  linkBandwidth: number;
  /** So many GPUs talk over the link; more of them talk over PCIe. */
  linkDomain: number;
  /** So many GPUs share each one's links evenly; 0: a switch gives any of them all of its links. */
  linkMesh: number;
  /** Both directions together, bytes/s. */
  pcieBandwidth: number;
  watts: number;
  /** USD per GPU and hour; 0 is unknown. */
  usdPerHour: number;
  gpusPerNode: number;
  source: string;
}

export function gpuFromRow(row: z.infer<typeof gpuRowSchema>): Gpu {
  return {
    id: row.id,
    class: row.class,
    architecture: row.architecture,
    bf16: row.bf16_tflops * 1e12,
    fp8: row.fp8_tflops === undefined ? undefined : row.fp8_tflops * 1e12,
    fp4: row.fp4_tflops === undefined ? undefined : row.fp4_tflops * 1e12,
    int8: row.int8_tops === undefined ? undefined : row.int8_tops * 1e12,
    bandwidth: row.bandwidth_gbs * 1e9,
    memory: row.memory_gb * 1e9,
    link: row.link,
    linkBandwidth: row.link_gbs * 1e9,
    linkDomain: row.link_domain ?? row.gpus_per_node,
    linkMesh: row.link_mesh ?? 0,
    // PCIe 4.0 x16 where the row does not say.
    pcieBandwidth: (row.pcie_gbs ?? 64) * 1e9,
    watts: row.watts,
    usdPerHour: row.usd_hour,
    gpusPerNode: row.gpus_per_node,
    source: row.source,
  };
}
