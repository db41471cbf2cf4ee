import type { Gpu } from '../catalogue/gpu.ts';
import { type Model, parameters } from '../catalogue/model.ts';
import { bytesPerElement, type Precision } from '../catalogue/precision.ts';
import { shard } from './operators.ts';

/** One replica: a model on `tp` GPUs of one kind. */
export interface Deployment {
  model: Model;
  gpu: Gpu;
  tp: number;
  weights: Precision;
  kv: Precision;
}

/** What CUDA, the engine and its graphs keep for themselves on each GPU, bytes. */
export const RUNTIME_BYTES = 2e9;

/** vLLM's `--gpu-memory-utilization`. */
const MEMORY_FRACTION = 0.9;

/** Weights of the whole replica, bytes. Copied key-value heads count as often as they are stored. */
export function weightBytes({ model, tp, weights }: Pick<Deployment, 'model' | 'tp' | 'weights'>): number {
  const copies = tp * shard(model, tp).kvHeads - model.kvHeads;
  const copied = model.layers * model.hidden * 2 * copies * model.headDim;
  const embedding = (model.tied ? 1 : 2) * model.hidden * model.vocab;
  // Quantised checkpoints leave embedding and head in 16 bit.
  return (parameters(model) + copied - embedding) * bytesPerElement(weights) + embedding * 2;
}

/** Keys and values of one token in the whole replica, bytes. */
export function kvBytesPerToken({ model, tp, kv }: Pick<Deployment, 'model' | 'tp' | 'kv'>): number {
  return 2 * model.layers * tp * shard(model, tp).kvHeads * model.headDim * bytesPerElement(kv);
}

/** Tokens whose keys and values fit beside the weights; 0 or less: the model does not fit. */
export function kvCapacityTokens(deployment: Deployment, memoryFraction = MEMORY_FRACTION): number {
  const { gpu, tp } = deployment;
  const free = tp * (gpu.memory * memoryFraction - RUNTIME_BYTES) - weightBytes(deployment);
  return Math.floor(free / kvBytesPerToken(deployment));
}

/** Why `tp` cannot split this model, or undefined. */
export function tpProblem(model: Model, tp: number): string | undefined {
  if (!Number.isInteger(tp) || tp < 1) return `tensor parallelism must be a positive whole number, not ${tp}`;
  if (model.heads % tp !== 0)
    return `tensor parallelism ${tp} does not divide the ${model.heads} attention heads of ${model.id}`;
  if (model.kvHeads % tp !== 0 && tp % model.kvHeads !== 0) {
    return `tensor parallelism ${tp} neither divides nor is a multiple of the ${model.kvHeads} key-value heads of ${model.id}`;
  }
  if (model.ffn % tp !== 0)
    return `tensor parallelism ${tp} does not divide the feed-forward width ${model.ffn} of ${model.id}`;
  return undefined;
}
