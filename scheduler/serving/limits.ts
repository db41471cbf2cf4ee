import { type Parallelism, spreadOf } from '../roofline/parallelism.ts';

/** How an engine batches; names of vLLM's options beside them. */
export interface SimulatedEngineLimits {
  /** --max-num-seqs */
  maxSequences: number;
  /** --max-num-batched-tokens: of one step. A prompt above it takes a step of its own when prompts are not cut. */
  tokenBudget: number;
  /** --block-size: tokens per block of keys and values. */
  blockTokens: number;
  /** --gpu-memory-utilization */
  memoryFraction: number;
  /** --enable-chunked-prefill: prompts are cut to fill the budget. */
  chunkedPrefill: boolean;
  /** Prompts and decodes share steps (vLLM V1), or steps with prompts hold nothing else (V0). */
  schedule: 'mixed' | 'prefill-first';
  /** --async-scheduling: the host prepares the next step while the GPU computes this one. */
  asyncScheduling: boolean;
  /** Share of each prompt that the prefix cache already holds, where a trace does not say what its prompts share. */
  prefixHit: number;
  /** Tokens that one hash of a trace stands for: 512 in Mooncake's. */
  prefixBlockTokens: number;
}

/** Of a whole replica: under data parallelism every rank schedules for itself, with limits of its own. */
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

/** The paper ran vLLM with `--no-enable-chunked-prefill --no-enable-prefix-caching --async-scheduling`, so a prompt is never cut. */
export const PAPER_LIMITS: SimulatedEngineLimits = { ...DEFAULT_LIMITS, chunkedPrefill: false, asyncScheduling: true };
