import { type Parallelism, spreadOf } from '../roofline/parallelism.ts';

/** How an engine batches, with the names of vLLM's options. */
export interface SimulatedEngineLimits {
  /** --max-num-seqs */
  maxSequences: number;
  /**
   * --max-num-batched-tokens: tokens of one step. If prompts are not chunked, a longer prompt is computed in a separate
   * step.
   */
  tokenBudget: number;
  /** --block-size: tokens per block of keys and values. */
  blockTokens: number;
  /** --gpu-memory-utilization */
  memoryFraction: number;
  /** --enable-chunked-prefill: prompts are cut so that they fill the token budget. */
  chunkedPrefill: boolean;
  /**
   * mixed: prompts and decodes share steps (vLLM V1). prefill-first: a step with prompts contains only prompts (V0).
   */
  schedule: 'mixed' | 'prefill-first';
  /** --async-scheduling: the host prepares the next step while the GPU computes this one. */
  asyncScheduling: boolean;
  /** Assumed share of each prompt that the prefix cache already holds, if a trace does not describe shared prefixes. */
  prefixHit: number;
  /** Number of tokens for each hash of a trace: 512 in the traces of Mooncake. */
  prefixBlockTokens: number;
}

/**
 * Limits of a whole replica. With data parallelism, each rank schedules separately within these limits, so they are
 * multiplied by the number of ranks.
 */
export function replicaLimits(limits: SimulatedEngineLimits, parallelism: Parallelism): SimulatedEngineLimits {
  const { dp } = spreadOf(parallelism);
  if (dp === 1) return limits;
  return { ...limits, maxSequences: limits.maxSequences * dp, tokenBudget: limits.tokenBudget * dp };
}

export const DEFAULT_LIMITS: SimulatedEngineLimits = {
  maxSequences: 256,
  tokenBudget: 8192,
  blockTokens: 16,
  memoryFraction: 0.9,
  chunkedPrefill: true,
  schedule: 'mixed',
  asyncScheduling: false,
  prefixHit: 0,
  prefixBlockTokens: 512,
};

/**
 * Limits of the vLLM that OpenTela's paper measured, with `--no-enable-chunked-prefill --no-enable-prefix-caching
 * --async-scheduling`. With them, a prompt is never divided over several steps.
 */
export const PAPER_LIMITS: SimulatedEngineLimits = { ...DEFAULT_LIMITS, chunkedPrefill: false, asyncScheduling: true };
