import type { Model } from '../catalogue/model.ts';
import { bytesPerElement, type Precision } from '../catalogue/precision.ts';

/** Floating-point operations and bytes moved, on one GPU. */
export interface Work {
  flops: number;
  bytes: number;
}

/** A product of [tokens, inner] by [inner, outer]. */
export interface Gemm {
  name: 'qkv' | 'o_proj' | 'up' | 'down' | 'router' | 'shared_up' | 'shared_down' | 'lm_head';
  inner: number;
  outer: number;
  /** Expert layers hold this many such matrices, of which a token passes `active`. */
  matrices: number;
  active: number;
}

/** Bytes of an activation: engines compute in bf16 whatever the weights are stored in. */
const ACTIVATION_BYTES = 2;

/** Shares of a model that one of `tp` GPUs holds. Heads below one per GPU are copied. */
export function shard(model: Model, tp: number) {
  return {
    heads: model.heads / tp,
    kvHeads: Math.max(1, model.kvHeads / tp),
    ffn: model.ffn / tp,
    sharedFfn: model.sharedFfn / tp,
    vocab: model.vocab / tp,
  };
}

/** The matrix products of one layer on one GPU, in order. */
export function layerGemms(model: Model, tp: number): Gemm[] {
  const { heads, kvHeads, ffn, sharedFfn } = shard(model, tp);
  const { hidden, headDim, experts, expertsPerToken } = model;
  const width = model.gated ? 2 : 1;
  const dense = { matrices: 1, active: 1 };
  const routed = { matrices: experts, active: expertsPerToken };
  const gemms: Gemm[] = [
    { name: 'qkv', inner: hidden, outer: (heads + 2 * kvHeads) * headDim, ...dense },
    { name: 'o_proj', inner: heads * headDim, outer: hidden, ...dense },
    { name: 'up', inner: hidden, outer: width * ffn, ...routed },
    { name: 'down', inner: ffn, outer: hidden, ...routed },
  ];
  if (experts > 1) gemms.push({ name: 'router', inner: hidden, outer: experts, ...dense });
  if (sharedFfn > 0) {
    gemms.push({ name: 'shared_up', inner: hidden, outer: width * sharedFfn, ...dense });
    gemms.push({ name: 'shared_down', inner: sharedFfn, outer: hidden, ...dense });
  }
  return gemms;
}

export function headGemm(model: Model, tp: number): Gemm {
  return { name: 'lm_head', inner: model.hidden, outer: model.vocab / tp, matrices: 1, active: 1 };
}

/**
 * Experts are read once each if any token of the step goes there: E(1-(1-k/E)^T) of them when the router spreads evenly.
 */
export function gemmWork(gemm: Gemm, tokens: number, weights: Precision): Work {
  const { inner, outer, matrices, active } = gemm;
  const read = matrices === 1 ? 1 : matrices * (1 - (1 - active / matrices) ** tokens);
  return {
    flops: 2 * tokens * active * inner * outer,
    bytes: read * inner * outer * bytesPerElement(weights) + ACTIVATION_BYTES * tokens * active * (inner + outer),
  };
}

/** Norms, rotary embedding, residual adds and activation of one layer: bytes are what counts. */
export function elementwiseWork(model: Model, tp: number, tokens: number): Work {
  const { heads, kvHeads, ffn } = shard(model, tp);
  const width = model.gated ? 3 : 2;
  const elements = 10 * model.hidden + 2 * (heads + kvHeads) * model.headDim + width * ffn * model.expertsPerToken;
  return { flops: 7 * tokens * model.hidden, bytes: ACTIVATION_BYTES * tokens * elements };
}

/** Kernels that `elementwiseWork` stands for: two fused add-norms, rotary embedding, cache write, activation. */
export const ELEMENTWISE_KERNELS = 5;

/** Attention of one layer over `pairs` (query, key) pairs, reading `keys` keys and values. */
export function attentionWork(model: Model, tp: number, pairs: number, keys: number, kv: Precision): Work {
  const { heads, kvHeads } = shard(model, tp);
  return {
    flops: 4 * heads * model.headDim * pairs,
    bytes: 2 * kvHeads * model.headDim * keys * bytesPerElement(kv),
  };
}

/** What an all-reduce of one step carries; there are two per layer. */
export function allReduceBytes(model: Model, tokens: number): number {
  return ACTIVATION_BYTES * tokens * model.hidden;
}
