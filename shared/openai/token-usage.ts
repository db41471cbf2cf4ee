/** Token counts as the three families of endpoints report them. */
import type { Endpoint, UsageKind } from './endpoints.ts';

export interface TokenUsage {
  /** Tokens, including cached ones. */
  prompt: number;
  /** Tokens, including reasoning. */
  completion: number;
  /** Part of `prompt` that was read from a prefix cache. */
  cached: number;
  /** Part of `completion`. */
  reasoning: number;
  /** At least one of `prompt` and `completion` is an estimate. */
  estimated: boolean;
}

/** The content of one report; engines omit what they do not know. */
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
  // Not token counts at all, such as `{"type":"duration","seconds":3}`.
  if (prompt === undefined && completion === undefined) return undefined;
  return {
    ...(prompt !== undefined && { prompt }),
    ...(completion !== undefined && { completion }),
    ...(cached !== undefined && { cached }),
    ...(reasoning !== undefined && { reasoning }),
  };
}

/** Reads a `usage` object; undefined if it is not an object or has no counts. */
export function readUsageJson(kind: UsageKind, usage: unknown): UsageReport | undefined {
  if (!isObject(usage)) return undefined;
  switch (kind) {
    case 'openai': {
      const total = count(usage.total_tokens);
      const completion = count(usage.completion_tokens);
      return report({
        // Rerankers of older engines report only the total.
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
      // Here `input_tokens` excludes tokens read from or written to a cache; vLLM and SGLang count the same way.
      const uncached = count(usage.input_tokens);
      const cached = count(usage.cache_read_input_tokens);
      return report({
        prompt:
          uncached === undefined
            ? undefined
            : // Each count is a safe integer, but their sum may not be, and a count that the wire cannot carry would close the tunnel for good.
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

/** Longer than any engine's reason. It is stored per request. */
const MAX_FINISH_CHARS = 64;

export function readFinish(value: unknown): string | undefined {
  return typeof value === 'string' && value.length > 0 && value.length <= MAX_FINISH_CHARS ? value : undefined;
}

/**
 * The engine's reason if it, and not the model, ended the answer: it shuts down, sleeps or was told to
 * (https://github.com/vllm-project/vllm/issues/57082). No client knows this reason, so the answer would count as
 * complete.
 */
export const ABORTED = 'abort';

/** True if the engine gave up a unary answer of chat or completions. */
export function isAborted(answer: unknown): boolean {
  const choices = isObject(answer) ? answer.choices : undefined;
  return Array.isArray(choices) && choices.some((choice) => isObject(choice) && choice.finish_reason === ABORTED);
}

const NO_USAGE: TokenUsage = { prompt: 0, completion: 0, cached: 0, reasoning: 0, estimated: false };

/** Bytes per token of text, by the usual rule of thumb. */
const BYTES_PER_TOKEN = 4;

export function estimateTokens(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}

/**
 * Fills in what the report lacks. Endpoints without tokens and failed answers cost nothing.
 * @param completion estimated tokens; undefined if this endpoint generates none
 */
export function completeUsage(
  endpoint: Pick<Endpoint, 'usage'>,
  { status = 200, promptBytes }: { status?: number; promptBytes?: number },
  report: UsageReport,
  completion: number | undefined,
): TokenUsage {
  if (endpoint.usage === 'none' || status >= 400) return NO_USAGE;
  return {
    prompt: report.prompt ?? estimateTokens(promptBytes ?? 0),
    completion: report.completion ?? completion ?? 0,
    cached: report.cached ?? 0,
    reasoning: report.reasoning ?? 0,
    estimated: report.prompt === undefined || (report.completion === undefined && completion !== undefined),
  };
}

export interface UsageMeterOptions {
  /** The answer is SSE, by the engine's content type and not by what the client asked for. */
  streaming: boolean;
  /** The engine was made to report usage: `usageEdits` returned at least one edit. */
  dropUsageEvent: boolean;
  /** Length of the request's body, to estimate the prompt's tokens if the engine reports none. */
  promptBytes?: number;
  /** The engine's status; an answer of 400 or more costs nothing. Default 200. */
  status?: number;
  /**
   * The engine's content type: an answer that is neither SSE nor JSON is complete when it ends. Default: from the endpoint
   * table.
   */
  contentType?: string;
}

export interface MeterResult {
  /** Held back so far; must still be forwarded. */
  flush: Uint8Array[];
  usage: TokenUsage;
  /** The answer ended properly for this endpoint. */
  complete: boolean;
  /** It ended early, although its framing is complete: inside a JSON value, or without the last event of a stream. */
  cut?: boolean;
  /** The engine gave the answer up, and sent an end that looks like any other. */
  aborted?: boolean;
  /** Why generation stopped, in the engine's terms: `stop`, `length`, `tool_calls`, `end_turn`, `completed` … */
  finish?: string;
}

export interface UsageMeter {
  /** What may be forwarded now, in order. */
  push(chunk: Uint8Array): Uint8Array[];
  /** The last event of the stream has arrived; an error of the connection after it does not matter. */
  readonly saidLast: boolean;
  /** Call once, even if the client or the engine is gone. */
  end(): MeterResult;
}
