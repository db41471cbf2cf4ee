import { type Layer, layerMatrices, type Matrix, type Mixer, windowOf } from '../catalogue/layers.ts';
import { bytesPerElement, type Precision } from '../catalogue/precision.ts';
import { type ModelDeployment, precisionOf, waysOf } from './model-deployment.ts';
import { type Parallelism, spreadOf } from './parallelism.ts';

/** Floating-point operations and bytes moved, on one GPU. */
export interface Work {
  flops: number;
  bytes: number;
}

/** A product of [tokens, inner] by [inner, outer] on one GPU. */
export interface Gemm {
  name: string;
  inner: number;
  outer: number;
  /** Number of equal matrices [inner, outer] in the layer, such as one per expert. May be a fraction on one GPU. */
  matrices: number;
  /** Number of the `matrices` that a token uses. May be a fraction on one GPU. */
  active: number;
  /** Share of the step's tokens that this GPU processes. */
  share: number;
  /**
   * Number of GPUs over which whole experts are distributed; the most loaded GPU ends last. 1: experts are not
   * distributed.
   */
  spread: number;
  weights: Precision;
}

/** Bytes of an activation value: engines compute in bf16 regardless of the precision of the weights. */
const ACTIVATION_BYTES = 2;

/** The matrix products of one layer on one GPU, in order. */
export function layerGemms(layer: Layer, deployment: Pick<ModelDeployment, 'model' | 'weights'> & Parallelism): Gemm[] {
  return layerMatrices(layer, deployment.model.hidden).map((matrix) => shardOf(matrix, layer, deployment));
}

function shardOf(
  matrix: Matrix,
  layer: Layer,
  deployment: Pick<ModelDeployment, 'model' | 'weights'> & Parallelism,
): Gemm {
  const { tp, pp, dp, ep, sp } = spreadOf(deployment);
  const weights = precisionOf(deployment, matrix.part);
  const routed = matrix.part === 'experts';
  // With data parallelism, each rank has its own tokens, but the experts process the tokens of all ranks.
  const share = 1 / (pp * sp * (routed ? 1 : dp));
  const { name, inner, outer, matrices, active } = matrix;
  if (routed && ep) {
    const spread = tp * dp;
    return { name, inner, outer, matrices: matrices / spread, active: active / spread, share, spread, weights };
  }
  const ways = waysOf(matrix, deployment);
  const shard = { name, matrices, active, share, spread: 1, weights };
  switch (matrix.split) {
    case 'none':
      return { ...shard, inner, outer };
    case 'inner':
      return { ...shard, inner: inner / ways, outer };
    case 'outer':
      return { ...shard, inner, outer: outer / ways + (name === 'qkv' ? copiedHeads(layer, ways) : 0) };
  }
}

/**
 * Key-value heads are copied if there are fewer heads than GPUs. Returns the width that the copies add to a GPU's
 * projection.
 */
function copiedHeads(layer: Layer, tp: number): number {
  const mixer = layer.mixers.find(({ kind }) => kind === 'grouped');
  if (mixer?.kind !== 'grouped') return 0;
  return (mixer.sharedKeyValue ? 1 : 2) * (Math.max(1, mixer.kvHeads / tp) - mixer.kvHeads / tp) * mixer.headDim;
}

export function headGemm({ model, ...parallelism }: Pick<ModelDeployment, 'model'> & Parallelism): Gemm {
  const { tp, dp, pp } = spreadOf(parallelism);
  const share = 1 / (dp * pp);
  // The head has 16 bits even in quantized checkpoints.
  return {
    name: 'lm_head',
    inner: model.hidden,
    outer: model.vocab / tp,
    matrices: 1,
    active: 1,
    share,
    spread: 1,
    weights: 'bf16',
  };
}

/**
 * Work of a product for `tokens` tokens. An expert is read once if any token of the step uses it. If the router sends
 * T tokens evenly to k experts each, E(1-(1-k/E)^T) of the E experts are read. If whole experts are on G GPUs and the
 * mean is m tokens, the most loaded GPU computes m + sqrt(2 m ln G) tokens (the maximum of G Poisson counts).
 */
export function gemmWork(gemm: Gemm, tokens: number): Work {
  const { inner, outer, matrices, active, share, spread, weights } = gemm;
  const here = Math.max(tokens * share, Math.min(tokens, 1));
  const read = matrices === 1 && active === 1 ? 1 : matrices * (1 - (1 - Math.min(1, active / matrices)) ** here);
  const mean = here * active;
  const computed = spread > 1 ? mean + Math.sqrt(2 * mean * Math.log(spread)) : mean;
  return {
    flops: 2 * computed * inner * outer,
    bytes: read * inner * outer * bytesPerElement(weights) + ACTIVATION_BYTES * computed * (inner + outer),
  };
}

/**
 * Bytes that norms, rotary embedding, residual adds and activation of one layer move on one GPU. They determine the
 * time of these kernels.
 */
export function elementwiseBytes(layer: Layer, hidden: number, parallelism: Parallelism, tokens: number): number {
  const { tp, pp, dp, sp } = spreadOf(parallelism);
  const { mixers, feedForward } = layer;
  let elements = mixers.reduce((sum, mixer) => sum + mixerElements(mixer, tp), mixers.length > 0 ? 5 * hidden : 0);
  if (feedForward !== undefined) {
    const { width, gated, active, experts } = feedForward;
    const ways = experts > 1 ? tp * dp : tp;
    elements += 5 * hidden + ((gated ? 3 : 2) * width * active * (experts > 1 ? dp : 1)) / ways;
  }
  // Each GPU that takes part processes at least one whole token.
  return ACTIVATION_BYTES * elements * Math.max(tokens / (pp * dp * sp), Math.min(tokens, 1));
}

function mixerElements(mixer: Mixer, tp: number): number {
  switch (mixer.kind) {
    case 'grouped':
      return 2 * (mixer.heads / tp + Math.max(1, mixer.kvHeads / tp)) * mixer.headDim;
    case 'latent':
      return 2 * ((mixer.heads * (mixer.nopeDim + mixer.ropeDim)) / tp + mixer.kvRank + mixer.queryRank);
    case 'recurrent':
      return (3 * mixer.inputs) / tp;
  }
}

/**
 * Number of kernels that `elementwiseBytes` represents: two fused add-norms, rotary embedding, cache write, activation.
 */
export const elementwiseKernels = ({ mixers, feedForward }: Layer): number =>
  (mixers.length > 0 ? 3 : 0) + (feedForward === undefined ? 0 : 2);

/** Work of attention in a decode step for each token of context, on one GPU. */
export function decodeAttentionWork(mixer: Mixer, parallelism: Parallelism, kv: Precision): Work {
  const { tp, pp, dp, sp } = spreadOf(parallelism);
  const ways = tp * sp;
  const share = 1 / (pp * dp);
  switch (mixer.kind) {
    case 'grouped': {
      const kvHeads = Math.max(1, mixer.kvHeads / ways);
      return {
        flops: (4 * mixer.heads * mixer.headDim * share) / ways,
        bytes: 2 * kvHeads * mixer.headDim * bytesPerElement(kv) * share,
      };
    }
    case 'latent': {
      // With absorbed matrices, every head attends to the latent vector directly.
      const { heads, kvRank, ropeDim } = mixer;
      return {
        flops: (2 * heads * (2 * kvRank + ropeDim) * share) / ways,
        bytes: (kvRank + ropeDim) * bytesPerElement(kv) * share,
      };
    }
    case 'recurrent':
      return { flops: 0, bytes: 0 };
  }
}

/** Operations of attention for each (query, key) pair of a prompt, on one GPU. */
export function prefillPairFlops(mixer: Mixer, parallelism: Parallelism): number {
  const { tp, pp, dp, sp } = spreadOf(parallelism);
  const over = tp * sp * pp * dp;
  switch (mixer.kind) {
    case 'grouped':
      return (4 * mixer.heads * mixer.headDim) / over;
    case 'latent':
      return (2 * mixer.heads * (mixer.nopeDim + mixer.ropeDim + mixer.valueDim)) / over;
    case 'recurrent':
      return 0;
  }
}

/** Bytes of recurrent state that a step reads and writes for each sequence, on one GPU. */
export function stateBytesPerStep(mixer: Mixer, parallelism: Parallelism): number {
  if (mixer.kind !== 'recurrent') return 0;
  const { tp, pp, dp, sp } = spreadOf(parallelism);
  return (2 * mixer.stateBytes) / (tp * pp * dp * sp);
}

/** Bytes that an all-reduce transfers for a group's tokens. */
export function activationBytes(hidden: number, tokens: number): number {
  return ACTIVATION_BYTES * tokens * hidden;
}

export const seesWindow = (mixer: Mixer): boolean => windowOf(mixer) > 0;
