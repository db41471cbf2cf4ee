/** Token counts as the three families of endpoints report them. */
import type { Endpoint, UsageKind } from './endpoints.ts';

export interface Usage {
  /** Tokens, cached ones included. */
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
    case 'anthropic': {
      // Here `input_tokens` are those alone that no cache had and none took; vLLM and SGLang count so, too.
      const uncached = count(usage.input_tokens);
      const cached = count(usage.cache_read_input_tokens);
      return report({
        prompt:
          uncached === undefined
            ? undefined
            : // Each count is a safe integer, their sum need not be: what the wire cannot carry would close the tunnel for good.
              Math.min(
                Number.MAX_SAFE_INTEGER,
                uncached + (cached ?? 0) + (count(usage.cache_creation_input_tokens) ?? 0),
              ),
        completion: count(usage.output_tokens),
        cached,
        reasoning: undefined,
      });
    }
    case 'none':
      return undefined;
  }
}

/** Longer than any engine's word; it is stored per request. */
const MAX_FINISH_CHARS = 64;

export function readFinish(value: unknown): string | undefined {
  return typeof value === 'string' && value.length > 0 && value.length <= MAX_FINISH_CHARS ? value : undefined;
}

/**
 * The engine's word where it, and not the model, ended the answer: it shuts down, sleeps or was told to
 * (https://github.com/vllm-project/vllm/issues/57082). No client knows it, so the answer would count as whole.
 */
export const ABORTED = 'abort';

/** Whether a whole answer of chat or completions was given up by its engine. */
export function isAborted(answer: unknown): boolean {
  const choices = isObject(answer) ? answer.choices : undefined;
  return Array.isArray(choices) && choices.some((choice) => isObject(choice) && choice.finish_reason === ABORTED);
}

const NO_USAGE: Usage = { prompt: 0, completion: 0, cached: 0, reasoning: 0, estimated: false };

/** Bytes per token of text, by the usual rule of thumb. */
const BYTES_PER_TOKEN = 4;

export function estimateTokens(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}

/**
 * Fills what the report lacks. Endpoints without tokens and answers that failed cost nothing.
 * @param completion guessed tokens; undefined if this endpoint generates none
 */
export function settleUsage(
  endpoint: Pick<Endpoint, 'usage'>,
  { status = 200, promptBytes }: { status?: number; promptBytes?: number },
  report: UsageReport,
  completion: number | undefined,
): Usage {
  if (endpoint.usage === 'none' || status >= 400) return NO_USAGE;
  return {
    prompt: report.prompt ?? estimateTokens(promptBytes ?? 0),
    completion: report.completion ?? completion ?? 0,
    cached: report.cached ?? 0,
    reasoning: report.reasoning ?? 0,
    estimated: report.prompt === undefined || (report.completion === undefined && completion !== undefined),
  };
}
