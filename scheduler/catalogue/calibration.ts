import * as z from 'zod';
import type { Gpu } from './gpu.ts';
import { PRECISIONS, type Precision } from './precision.ts';

const fraction = z.number().finite().min(0.01).max(2);
const microseconds = z.number().finite().min(0).max(10_000);

/** Of matrix products alone. */
const productSchema = z.object({
  compute: fraction,
  memory: fraction,
  p: z.number().min(1).max(20),
  launch_us: microseconds,
});

/** How much of its data sheet a GPU reaches. Shares of peak, except `p` (how soft the roofline's corner is) and the launch times. */
const efficiencySchema = z.object({
  compute: fraction,
  /** Of `compute`, what is left under continuous load: a hot GPU at its power limit clocks down. Kernels are profiled cool. */
  sustained: fraction,
  memory: fraction,
  p: z.number().min(1).max(20),
  launch_us: microseconds,
  attention_compute: fraction,
  attention_memory: fraction,
  attention_launch_us: microseconds,
  elementwise_memory: fraction,
  elementwise_launch_us: microseconds,
  /** What differs for products whose weights are stored so; their peak is that of the precision. */
  products: z.partialRecord(z.enum(PRECISIONS), productSchema).optional(),
  /** The same for the grouped products of routed experts. */
  experts: z.partialRecord(z.enum(PRECISIONS), productSchema).optional(),
  fitted: z.string(),
});
export type Efficiency = z.infer<typeof efficiencySchema>;

/**
 * All-reduce over t GPUs of S bytes: latency + (2(t-1)/t) S / (link/2 * bandwidth). `bandwidth` is the share of one
 * direction of the link that a ring reaches.
 */
const linkSchema = z.object({
  latency_us: microseconds,
  bandwidth: fraction,
  /** By the number of GPUs, where a ring of so many reaches another share (PCIe without a switch). */
  gpus: z.record(z.string().regex(/^\d+$/), z.object({ latency_us: microseconds, bandwidth: fraction })).optional(),
  fitted: z.string(),
});

/**
 * What the engine's host adds, in ms: to each step, to each step for each sequence in it, and to each request once (HTTP, tokeniser,
 * hand-over). The last delays the request but keeps no GPU from another's step.
 */
const hostSchema = z.object({
  step_ms: z.number().min(0).max(1000),
  sequence_ms: z.number().min(0).max(100),
  request_ms: z.number().min(0).max(1000),
  /** Share of a step's host time that asynchronous scheduling does beside the GPU's work, where the engine has it on. */
  hidden: z.number().min(0).max(1).default(0),
  fitted: z.string(),
});
export type Host = z.infer<typeof hostSchema>;

export const calibrationSchema = z.object({
  /** The engine and version that it is for; what other engines do differs. */
  engine: z.string().min(1).max(128).default('not told'),
  default: efficiencySchema,
  gpus: z.record(z.string(), efficiencySchema.partial()),
  /** By the `link` of a GPU's row; `nvlink` stands for links without measurements. */
  links: z.object({ nvlink: linkSchema, pcie: linkSchema }).catchall(linkSchema),
  host: hostSchema,
});
export type Calibration = z.infer<typeof calibrationSchema>;

/** A GPU without measurements takes its siblings' parameters (same class), then the defaults. */
export function efficiencyOf(calibration: Calibration, gpu: Gpu): Efficiency {
  const rows = [calibration.default, calibration.gpus[gpu.class], calibration.gpus[gpu.id]];
  const products = Object.assign({}, ...rows.map((row) => row?.products));
  const experts = Object.assign({}, ...rows.map((row) => row?.experts));
  return efficiencySchema.parse({ ...Object.assign({}, ...rows), products, experts });
}

/** Of products whose weights are stored so; `routed`: of experts. */
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
