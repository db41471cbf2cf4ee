/** Lines that `trace sample` prints, and their schemas. */
import * as z from 'zod';

const timestamp = z.iso.datetime({ offset: true });
const gpuClass = z.string().max(64);

/** One node at one time. Lines of earlier versions lack the members with a default. */
export const nodeSampleSchema = z.object({
  timestamp,
  session: z.string(),
  gpus: z.number().min(0),
  /** Class of the node's GPUs; null: unknown. */
  gpu: gpuClass.nullable().default(null),
  /** Models that the node serves; empty: it serves none, or an earlier version made the line. */
  models: z.array(z.string()).max(64).default([]),
  /** True if the node's engine had requests. */
  busy: z.boolean(),
  kv_use: z.number().min(0).max(1).nullable(),
  /** Power of all GPUs of the node in watts; null: unknown. */
  power_w: z.number().min(0).nullable(),
  /** Tokens per second that the engine generates; null: unknown. */
  tokens_per_second: z.number().min(0).nullable().default(null),
});
export type NodeSample = z.infer<typeof nodeSampleSchema>;

/** GPUs that a cluster reports as idle: no job has them. */
export const clusterSampleSchema = z.object({
  timestamp,
  cluster: z.string(),
  gpu: gpuClass.nullable().default(null),
  idle_gpus: z.number().min(0),
});
export type ClusterSample = z.infer<typeof clusterSampleSchema>;

/** A node's line has a session. */
export const sampleSchema = z.union([nodeSampleSchema, clusterSampleSchema]);
