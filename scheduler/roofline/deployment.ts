import type { Gpu } from '../catalogue/gpu.ts';
import { precisionProblem } from '../catalogue/gpu-architecture.ts';
import {
  cacheElements,
  type LayerPart,
  layerMatrices,
  type Matrix,
  type Mixer,
  windowOf,
} from '../catalogue/layers.ts';
import { embeddingParameters, type Model, windowTokens } from '../catalogue/model.ts';
import { bytesPerElement, type Precision } from '../catalogue/precision.ts';
import { enginesOf, gpusOf, type Parallelism, parallelismProblem, spreadOf } from './parallelism.ts';

/** One replica: a model on the GPUs of its parallelism, all of one kind. */
export interface ModelDeployment extends Parallelism {
  model: Model;
  gpu: Gpu;
  weights: Precision;
  kv: Precision;
}

/** What CUDA, the engine and its graphs keep for themselves on each GPU, bytes. */
export const RUNTIME_BYTES = 2e9;

/** vLLM's `--gpu-memory-utilization`. */
const MEMORY_FRACTION = 0.9;

type Stored = Pick<ModelDeployment, 'model' | 'weights'> & Parallelism;

/** How a part of the weights is stored: as in the checkpoint where that is what is asked for, else all products alike. */
export function precisionOf(
  { model, weights }: Pick<ModelDeployment, 'model' | 'weights'>,
  part: LayerPart,
): Precision {
  return weights === model.storage.weights ? model.storage.parts[part] : weights;
}

/** On so many GPUs a matrix is cut; the others hold copies. */
export function waysOf(matrix: Matrix, parallelism: Parallelism): number {
  const { tp, dp } = spreadOf(parallelism);
  if (matrix.split === 'none') return 1;
  return matrix.part === 'experts' ? tp * dp : tp;
}

/** Weights of the whole replica with all copies, bytes. */
export function weightBytes(stored: Stored): number {
  const { model } = stored;
  const { pp, tp } = spreadOf(stored);
  // Copies of what the stages share out stand on every GPU of a stage.
  const perStage = gpusOf(stored) / pp;
  let bytes = 0;
  for (const layer of model.layers) {
    for (const matrix of layerMatrices(layer, model.hidden)) {
      const each = matrix.matrices * matrix.inner * matrix.outer * bytesPerElement(precisionOf(stored, matrix.part));
      bytes += (layer.count * each * perStage) / waysOf(matrix, stored);
    }
    for (const mixer of layer.mixers) bytes += layer.count * extraMixerBytes(mixer, stored) * (perStage / tp);
  }
  // Embedding and head stay in 16 bit in quantised checkpoints; each stage has at most one of them, cut by tensor parallelism.
  return bytes + (embeddingParameters(model) + model.extra) * 2 * (perStage / tp);
}

/** Copied key-value heads count as often as they are stored; what is small in a recurrent mixer stays in 16 bit. */
function extraMixerBytes(mixer: Mixer, stored: Stored): number {
  if (mixer.kind === 'recurrent') return mixer.small * 2;
  if (mixer.kind === 'latent') return 0;
  const copies = stored.tp * Math.max(1, mixer.kvHeads / stored.tp) - mixer.kvHeads;
  return stored.model.hidden * 2 * copies * mixer.headDim * bytesPerElement(precisionOf(stored, 'attention'));
}

/** What sequences keep in the memory of the whole replica, bytes. */
export interface CacheLayout {
  /** Per token, in layers that see everything. */
  perToken: number;
  /** Per token of the last `window`, in layers that see only those. */
  perWindowToken: number;
  /** Tokens; 0: no layer has a window. */
  window: number;
  /** Per sequence, whatever its length. */
  perSequence: number;
}

export function cacheLayout(deployment: Pick<ModelDeployment, 'model' | 'kv'> & Parallelism): CacheLayout {
  const { model, kv } = deployment;
  const layout: CacheLayout = { perToken: 0, perWindowToken: 0, window: windowTokens(model), perSequence: 0 };
  const { tp, sp } = spreadOf(deployment);
  for (const { count, mixers } of model.layers) {
    for (const mixer of mixers) {
      const bytes = count * cacheElements(mixer) * bytesPerElement(kv) * cacheCopies(mixer, tp * sp);
      if (windowOf(mixer) > 0) layout.perWindowToken += bytes;
      else layout.perToken += bytes;
      if (mixer.kind === 'recurrent') layout.perSequence += count * mixer.stateBytes;
    }
  }
  return layout;
}

/** How often a token's keys and values are stored in its data-parallel rank: latent vectors on every GPU, heads below one per GPU too. */
function cacheCopies(mixer: Mixer, ways: number): number {
  switch (mixer.kind) {
    case 'latent':
      return ways;
    case 'grouped':
      return (ways * Math.max(1, mixer.kvHeads / ways)) / mixer.kvHeads;
    case 'recurrent':
      return 1;
  }
}

/** Keys and values of one token in the whole replica while every layer sees it, bytes. */
export function kvBytesPerToken(deployment: Pick<ModelDeployment, 'model' | 'kv'> & Parallelism): number {
  const { perToken, perWindowToken } = cacheLayout(deployment);
  return perToken + perWindowToken;
}

/** What a sequence of so many tokens keeps in memory, bytes. */
export function sequenceBytes(layout: CacheLayout, tokens: number): number {
  return layout.perToken * tokens + layout.perWindowToken * Math.min(tokens, layout.window) + layout.perSequence;
}

/** Bytes beside the weights, of the whole replica; 0 or less: the model does not fit. */
export function freeBytes(deployment: ModelDeployment, memoryFraction = MEMORY_FRACTION): number {
  return gpusOf(deployment) * (deployment.gpu.memory * memoryFraction - RUNTIME_BYTES) - weightBytes(deployment);
}

/**
 * Tokens that fit beside the weights; 0 or less: the model does not fit. `sequenceTokens` is how long each sequence is: a model with
 * windows or states holds more tokens in long sequences. Without it every layer sees every token.
 */
export function kvCapacityTokens(
  deployment: ModelDeployment,
  memoryFraction = MEMORY_FRACTION,
  sequenceTokens?: number,
): number {
  const layout = cacheLayout(deployment);
  const tokens = sequenceTokens ?? Math.max(1, layout.window);
  const each = sequenceBytes(layout, tokens) / tokens;
  return Math.floor(freeBytes(deployment, memoryFraction) / Math.max(each, 1e-9));
}

/** Why the engine would not start so, or undefined: parallelism, precision on this silicon, memory. */
export function deploymentProblem(deployment: ModelDeployment, memoryFraction = MEMORY_FRACTION): string | undefined {
  if (deployment.prefill !== undefined) {
    const { decode, prefill } = enginesOf(deployment);
    const pair = parallelismProblem(deployment.model, deployment);
    return pair ?? deploymentProblem(decode, memoryFraction) ?? (prefill && deploymentProblem(prefill, memoryFraction));
  }
  const { model, gpu, weights, kv } = deployment;
  const problem = parallelismProblem(model, deployment) ?? precisionProblem(gpu, weights, kv);
  if (problem !== undefined) return problem;
  if (freeBytes(deployment, memoryFraction) > sequenceBytes(cacheLayout(deployment), 1)) return undefined;
  return `${model.id} does not fit ${gpusOf(deployment)} × ${gpu.id}: its weights leave no memory for a single token`;
}
