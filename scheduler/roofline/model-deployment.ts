import type { GpuType } from '../catalogue/gpu.ts';
import { precisionProblem } from '../catalogue/gpu-architecture.ts';
import { cacheElements, layerMatrices, type Matrix, type Mixer, windowOf } from '../catalogue/layers.ts';
import { embeddingParameters, layerCount, type Model, windowTokens } from '../catalogue/model.ts';
import { bytesPerElement, type Precision } from '../catalogue/precision.ts';
import { enginesOf, gpusOf, type Parallelism, parallelismProblem, spreadOf } from './parallelism.ts';
import { stageShares } from './pipeline-stages.ts';

/** One replica: a model on as many GPUs as its parallelism needs, all of one kind. */
export interface ModelDeployment extends Parallelism {
  model: Model;
  gpu: GpuType;
  weights: Precision;
  kv: Precision;
}

/** Bytes that CUDA, the engine and its graphs reserve on each GPU. */
export const RUNTIME_BYTES = 2e9;

/** Share of a GPU's memory that the engine uses: the default of vLLM's `--gpu-memory-utilization`. */
const MEMORY_FRACTION = 0.9;

type Stored = Pick<ModelDeployment, 'model' | 'weights'> & Parallelism;

/**
 * Precision of a part of the weights. If the requested precision is the main precision of the checkpoint, each part has
 * its precision in the checkpoint. Otherwise all products have the requested precision. A router has 16 bits in every
 * checkpoint.
 */
export function precisionOf(
  { model, weights }: Pick<ModelDeployment, 'model' | 'weights'>,
  part: Matrix['part'],
): Precision {
  if (part === 'router') return 'bf16';
  return weights === model.storage.weights ? model.storage.parts[part] : weights;
}

/** Number of GPUs over which a matrix is divided; the other GPUs hold copies. */
export function waysOf(matrix: Matrix, parallelism: Parallelism): number {
  const { tp, dp } = spreadOf(parallelism);
  if (matrix.split === 'none') return 1;
  return matrix.part === 'experts' ? tp * dp : tp;
}

/** Bytes of the weights of the whole replica, including copies. */
export function weightBytes(stored: Stored): number {
  const { model } = stored;
  const { pp, tp } = spreadOf(stored);
  // If a matrix is divided over fewer GPUs than a stage has, the stage holds several copies of it.
  const perStage = gpusOf(stored) / pp;
  let bytes = 0;
  for (const layer of model.layers) {
    for (const matrix of layerMatrices(layer, model.hidden)) {
      const each = matrix.matrices * matrix.inner * matrix.outer * bytesPerElement(precisionOf(stored, matrix.part));
      bytes += (layer.count * each * perStage) / waysOf(matrix, stored);
    }
    for (const mixer of layer.mixers) bytes += layer.count * extraMixerBytes(mixer, stored) * (perStage / tp);
  }
  // Embedding and head have 16 bits even in quantized checkpoints. Each stage has at most one of these two matrices,
  // divided by tensor parallelism.
  return bytes + (embeddingParameters(model) + model.extra) * 2 * (perStage / tp);
}

/**
 * Bytes that a mixer adds: copies of key-value heads, and the small parameters of a recurrent mixer, which have 16
 * bits.
 */
function extraMixerBytes(mixer: Mixer, stored: Stored): number {
  if (mixer.kind === 'recurrent') return mixer.small * 2;
  if (mixer.kind === 'latent') return 0;
  const copies = stored.tp * Math.max(1, mixer.kvHeads / stored.tp) - mixer.kvHeads;
  return stored.model.hidden * 2 * copies * mixer.headDim * bytesPerElement(precisionOf(stored, 'attention'));
}

/** Memory that sequences take in the whole replica, bytes. */
export interface CacheLayout {
  /** Bytes for each token, in layers with full attention. */
  perToken: number;
  /** Bytes for each of the last `window` tokens, in layers with a window. */
  perWindowToken: number;
  /** Length of the window, tokens; 0: no layer has a window. */
  window: number;
  /** Bytes for each sequence, independent of its length. */
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

/**
 * How many GPUs of a data-parallel rank hold a token's keys and values. Each GPU holds latent vectors; heads are copied
 * if there are fewer heads than GPUs.
 */
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

/** Bytes of keys and values of one token in the whole replica, while every layer attends to it. */
export function kvBytesPerToken(deployment: Pick<ModelDeployment, 'model' | 'kv'> & Parallelism): number {
  const { perToken, perWindowToken } = cacheLayout(deployment);
  return perToken + perWindowToken;
}

/** Bytes of a sequence of this many tokens. */
export function sequenceBytes(layout: CacheLayout, tokens: number): number {
  return layout.perToken * tokens + layout.perWindowToken * Math.min(tokens, layout.window) + layout.perSequence;
}

/**
 * Bytes of the whole replica's memory that weights leave free; 0 or less: the model does not fit. In a pipeline, each
 * stage holds keys and values only for its layers, so the stage with the least memory for each layer counts for all.
 */
export function freeBytes(deployment: ModelDeployment, memoryFraction = MEMORY_FRACTION): number {
  const { model, gpu, tp } = deployment;
  const { pp } = spreadOf(deployment);
  const perGpu = gpu.memoryBytes * memoryFraction - RUNTIME_BYTES;
  const weights = weightBytes(deployment);
  if (pp === 1) return gpusOf(deployment) * perGpu - weights;
  const perStage = gpusOf(deployment) / pp;
  // The first stage has the embedding, and the last one the output head.
  const vocabulary = model.hidden * model.vocab * 2 * (perStage / tp);
  const layers = weights - (embeddingParameters(model) + model.extra) * 2 * (perStage / tp);
  const rest = model.extra * 2 * (perStage / tp);
  const free = stageShares(layerCount(model), pp).map((share, i) => {
    const own = share * layers + (i === 0 ? vocabulary + rest : i === pp - 1 ? vocabulary : 0);
    return (perStage * perGpu - own) / share;
  });
  return Math.min(...free);
}

/**
 * Number of tokens that fit into the memory that weights leave free; 0 or less: the model does not fit.
 * `sequenceTokens`: length of each sequence; a model with windows or states holds more tokens if sequences are long.
 * Without it, every layer counts as one with full attention.
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

/**
 * Returns why the engine would not start with this deployment: parallelism, precision on this GPU, or memory.
 * Undefined: it would start.
 */
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
