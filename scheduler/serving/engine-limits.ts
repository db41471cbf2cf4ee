import { type Parallelism, spreadOf } from '../roofline/parallelism.ts';

/** How an engine batches, with the names of vLLM's options. */
export interface SimulatedEngineLimits {
  /** --max-num-seqs */
  maxSequences: number;
  /** --max-num-batched-tokens: of one step. If prompts are not chunked, a longer prompt takes a separate step. */
  tokenBudget: number;
  /** --block-size: tokens per block of keys and values. */
  blockTokens: number;
  /** --gpu-memory-utilization */
  memoryFraction: number;
  /** --enable-chunked-prefill: prompts are cut to fill the budget. */
  chunkedPrefill: boolean;
  /** Prompts and decodes share steps (vLLM V1), or steps with prompts contain only prompts (V0). */
  schedule: 'mixed' | 'prefill-first';
  /** --async-scheduling: the host prepares the next step while the GPU computes this one. */
  asyncScheduling: boolean;
  /** Share of each prompt that the prefix cache already holds, if a trace does not describe shared prefixes. */
  prefixHit: number;
  /** Tokens per hash of a trace: 512 in Mooncake's. */
  prefixBlockTokens: number;
}

/** Limits of a whole replica: under data parallelism every rank schedules separately, with its own limits. */
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
 * The paper ran vLLM with `--no-enable-chunked-prefill --no-enable-prefix-caching --async-scheduling`, so a prompt is
 * never cut.
 */
export const PAPER_LIMITS: SimulatedEngineLimits = { ...DEFAULT_LIMITS, chunkedPrefill: false, asyncScheduling: true };
