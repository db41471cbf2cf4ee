/** Token counts as the three families of endpoints report them. */
import type { UsageKind } from './endpoints.ts';

export interface Usage {
  /** Tokens, cached ones included where the engine includes them. */
  prompt: number;
  /** Tokens, reasoning included. */
  completion: number;
  /** Of `prompt`, read from a prefix cache. */
  cached: number;
  /** Of `completion`. */
  reasoning: number;
  /** At least one of `prompt` and `completion` is a guess. */
  estimated: boolean;
}

/** What one report says; engines leave out what they do not know. */
export interface UsageReport {
  prompt?: number;
  completion?: number;
  cached?: number;
  reasoning?: number;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function count(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

function inside(usage: Record<string, unknown>, details: string, name: string): number | undefined {
  const value = usage[details];
  return isObject(value) ? count(value[name]) : undefined;
}

type Counts = { readonly [K in keyof UsageReport]: number | undefined };

function report(counts: Counts): UsageReport | undefined {
  const { prompt, completion, cached, reasoning } = counts;
  // Not token counts at all, like `{"type":"duration","seconds":3}`.
  if (prompt === undefined && completion === undefined) return undefined;
  return {
    ...(prompt !== undefined && { prompt }),
    ...(completion !== undefined && { completion }),
    ...(cached !== undefined && { cached }),
    ...(reasoning !== undefined && { reasoning }),
  };
}

/** Reads a `usage` object; undefined if it is none or holds no counts. */
export function readUsage(kind: UsageKind, usage: unknown): UsageReport | undefined {
  if (!isObject(usage)) return undefined;
  switch (kind) {
    case 'openai': {
      const total = count(usage.total_tokens);
      const completion = count(usage.completion_tokens);
      return report({
        // Rerankers of older engines report the total alone.
        prompt:
          count(usage.prompt_tokens) ?? (total === undefined ? undefined : Math.max(0, total - (completion ?? 0))),
        completion,
        cached: inside(usage, 'prompt_tokens_details', 'cached_tokens'),
        reasoning: inside(usage, 'completion_tokens_details', 'reasoning_tokens'),
      });
    }
    case 'responses':
      return report({
        prompt: count(usage.input_tokens),
        completion: count(usage.output_tokens),
        cached: inside(usage, 'input_tokens_details', 'cached_tokens'),
        reasoning: inside(usage, 'output_tokens_details', 'reasoning_tokens'),
      });
    case 'anthropic':
      return report({
        prompt: count(usage.input_tokens),
        completion: count(usage.output_tokens),
        cached: count(usage.cache_read_input_tokens),
        reasoning: undefined,
      });
    case 'none':
      return undefined;
  }
}

export const NO_USAGE: Usage = { prompt: 0, completion: 0, cached: 0, reasoning: 0, estimated: false };

/** Bytes per token of text, by the usual rule of thumb. */
const BYTES_PER_TOKEN = 4;

export function estimateTokens(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}

/**
 * Fills what the report lacks.
 * @param guess tokens to assume; a kind of answer that has no completion passes `completion: undefined`, which counts as 0
 */
export function settleUsage(
  reported: UsageReport,
  guess: { prompt: number | undefined; completion: number | undefined },
): Usage {
  const { prompt, completion, cached, reasoning } = reported;
  return {
    prompt: prompt ?? guess.prompt ?? 0,
    completion: completion ?? guess.completion ?? 0,
    cached: cached ?? 0,
    reasoning: reasoning ?? 0,
    estimated: prompt === undefined || (completion === undefined && guess.completion !== undefined),
  };
}
