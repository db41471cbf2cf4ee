import * as z from 'zod';
import type { GpuType } from './gpu.ts';
import { PRECISIONS, type Precision } from './precision.ts';

const fraction = z.number().finite().min(0.01).max(2);
const microseconds = z.number().finite().min(0).max(10_000);

/** Efficiency of matrix products. */
const productSchema = z.object({
  compute: fraction,
  memory: fraction,
  p: z.number().min(1).max(20),
  launch_us: microseconds,
});

/**
 * Efficiency of a GPU relative to its data sheet. Values are shares of peak, except `p` (the exponent that rounds the
 * roofline's corner, see `gemmSeconds`) and the launch times.
 */
const efficiencySchema = z.object({
  compute: fraction,
  /**
   * Share of `compute` that remains under continuous load, because a GPU at its power limit lowers its clock. Kernels
   * are profiled on a cool GPU.
   */
  sustained: fraction,
  memory: fraction,
  p: z.number().min(1).max(20),
  launch_us: microseconds,
  attention_compute: fraction,
  attention_memory: fraction,
  attention_launch_us: microseconds,
  elementwise_memory: fraction,
  elementwise_launch_us: microseconds,
  /**
   * Efficiency by precision of the weights, for precisions in which matrix products reach other shares of their peak
   * than the values above.
   */
  products: z.partialRecord(z.enum(PRECISIONS), productSchema).optional(),
  /** As `products`, for the grouped matrix products (grouped GEMM) of routed experts. */
  experts: z.partialRecord(z.enum(PRECISIONS), productSchema).optional(),
  fitted: z.string(),
});
export type Efficiency = z.infer<typeof efficiencySchema>;

/**
 * Parameters for the time of an all-reduce of S bytes over t GPUs: latency + (2(t-1)/t) S / (link/2 * bandwidth).
 * `bandwidth` is the share of one direction of the link that a ring reaches.
 */
const linkSchema = z.object({
  latency_us: microseconds,
  bandwidth: fraction,
  /** Parameters by number of GPUs, for rings that reach another share of the link (PCIe without a switch). */
  gpus: z.record(z.string().regex(/^\d+$/), z.object({ latency_us: microseconds, bandwidth: fraction })).optional(),
  fitted: z.string(),
});

/**
 * Time in ms that the engine's host adds: to each step; to each step for each of its sequences; and once to each
 * request (HTTP, tokenizer, transfer between processes). The time per request delays the response, but the GPU can
 * begin the next step meanwhile.
 */
const hostSchema = z.object({
  step_ms: z.number().min(0).max(1000),
  sequence_ms: z.number().min(0).max(100),
  request_ms: z.number().min(0).max(1000),
  /** Share of a step's host time that overlaps with the GPU's work, if the engine enables asynchronous scheduling. */
  hidden: z.number().min(0).max(1).default(0),
  fitted: z.string(),
});
export type CalibrationHost = z.infer<typeof hostSchema>;

export const calibrationSchema = z.object({
  /** The engine and version that were measured. Other engines have other times. */
  engine: z.string().min(1).max(128).default('not told'),
  default: efficiencySchema,
  gpus: z.record(z.string(), efficiencySchema.partial()),
  /** Parameters by the `link` in a GPU's row. A link without measurements has the parameters of `nvlink`. */
  links: z.object({ nvlink: linkSchema, pcie: linkSchema }).catchall(linkSchema),
  host: hostSchema,
});
export type Calibration = z.infer<typeof calibrationSchema>;

/**
 * Returns the parameters of a GPU. A GPU without measurements has the parameters of its class, or else the defaults.
 */
export function efficiencyOf(calibration: Calibration, gpu: GpuType): Efficiency {
  const rows = [calibration.default, calibration.gpus[gpu.class], calibration.gpus[gpu.id]];
  const products = Object.assign({}, ...rows.map((row) => row?.products));
  const experts = Object.assign({}, ...rows.map((row) => row?.experts));
  return efficiencySchema.parse({ ...Object.assign({}, ...rows), products, experts });
}

/** Efficiency of products with weights in this precision; `routed`: of grouped products of routed experts. */
export function productEfficiency(
  efficiency: Efficiency,
  weights: Precision,
  routed = false,
): Pick<Efficiency, 'compute' | 'memory' | 'p' | 'launch_us'> {
  const { compute, memory, p, launch_us } = efficiency;
  return {
    compute,
    memory,
    p,
    launch_us,
    ...efficiency.products?.[weights],
    ...(routed ? efficiency.experts?.[weights] : {}),
  };
}
