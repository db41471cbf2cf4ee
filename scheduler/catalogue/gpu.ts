import * as z from 'zod';
import { ARCHITECTURES, type Architecture } from './gpu-architecture.ts';

const positive = z.number().finite().positive();

/** One row of `gpus` in `shared/hardware/gpus.json`, or of an operator's file, in the units of data sheets. */
const gpuRowSchema = z.strictObject({
  id: z.string().min(1).max(64),
  class: z.string().min(1).max(32),
  architecture: z.enum(ARCHITECTURES).optional(),
  bf16_tflops: positive,
  fp8_tflops: positive.optional(),
  fp4_tflops: positive.optional(),
  int8_tops: positive.optional(),
  bandwidth_gbs: positive,
  /** Memory in GB of 10^9 bytes, as the driver reports it. */
  memory_gb: positive,
  /** Name of the link in `links` of the calibration. */
  link: z.string().min(1).max(32),
  link_gbs: positive,
  /** Number of GPUs that the link joins; absent: all GPUs of a node. */
  link_domain: z.number().int().min(1).max(72).optional(),
  /**
   * Number of GPUs on the board, if each GPU is wired directly to each other GPU instead of to a switch. Two GPUs can
   * use only the wires between them.
   */
  link_mesh: z.number().int().min(2).max(72).optional(),
  pcie_gbs: positive.optional(),
  watts: positive,
  usd_hour: z.number().finite().nonnegative(),
  gpus_per_node: z.number().int().min(1).max(72),
  source: z.string().max(256),
});
export const gpuFileSchema = z.object({ gpus: z.array(gpuRowSchema).max(1000) });

/** A type of GPU, in SI units. */
export interface GpuType {
  id: string;
  /** Name of its class in shared/hardware, which agents publish. */
  class: string;
  /** Decides which precisions can run on it; undefined: unknown, and no precision is refused. */
  architecture: Architecture | undefined;
  /**
   * Peak of dense products, FLOP/s. fp8, int8 and fp4 are undefined if the GPU has no units for them: weights are then
   * widened before the product.
   */
  bf16: number;
  fp8: number | undefined;
  int8: number | undefined;
  fp4: number | undefined;
  /** Bytes/s. */
  bandwidth: number;
  /** Memory in bytes, as the driver reports it. */
  memoryBytes: number;
  link: string;
  /** Bytes/s of its link, both directions together. */
  linkBandwidth: number;
  /** A group of at most this many GPUs communicates over the link; a larger group uses PCIe. */
  linkDomain: number;
  /** Number of GPUs over which the links of each GPU are evenly divided. 0: a switch gives each pair all links. */
  linkMesh: number;
  /** Bytes/s of PCIe, both directions together. */
  pcieBandwidth: number;
  watts: number;
  /** Price of a GPU, USD per hour; 0: unknown. */
  usdPerHour: number;
  gpusPerNode: number;
  source: string;
}

export function gpuFromRow(row: z.infer<typeof gpuRowSchema>): GpuType {
  return {
    id: row.id,
    class: row.class,
    architecture: row.architecture,
    bf16: row.bf16_tflops * 1e12,
    fp8: row.fp8_tflops === undefined ? undefined : row.fp8_tflops * 1e12,
    fp4: row.fp4_tflops === undefined ? undefined : row.fp4_tflops * 1e12,
    int8: row.int8_tops === undefined ? undefined : row.int8_tops * 1e12,
    bandwidth: row.bandwidth_gbs * 1e9,
    memoryBytes: row.memory_gb * 1e9,
    link: row.link,
    linkBandwidth: row.link_gbs * 1e9,
    linkDomain: row.link_domain ?? row.gpus_per_node,
    linkMesh: row.link_mesh ?? 0,
    // A row without a value gets 64 GB/s, the bandwidth of PCIe 4.0 x16.
    pcieBandwidth: (row.pcie_gbs ?? 64) * 1e9,
    watts: row.watts,
    usdPerHour: row.usd_hour,
    gpusPerNode: row.gpus_per_node,
    source: row.source,
  };
}
