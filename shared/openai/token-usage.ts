/** Token counts as the three families of endpoints report them. */
import type { Endpoint, UsageKind } from './endpoints.ts';

export interface TokenUsage {
  /** Tokens of the prompt, including cached ones. */
  prompt: number;
  /** Tokens of the response, including reasoning. */
  completion: number;
  /** Tokens of `prompt` that were read from a prefix cache. */
  cached: number;
  /** Tokens of `completion` that were reasoning. */
  reasoning: number;
  /** True if `prompt` or `completion` is an estimate. */
  estimated: boolean;
  /** Milliseconds of audio in the request or in the response. Absent: none. */
  audioMs?: number;
  /** Images in the response. Absent: none. */
  images?: number;
}

/** The content of one report. Engines omit what they do not know. */
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
  // The object has no token counts, as in `{"type":"duration","seconds":3}`.
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
    case 'images':
    case 'responses':
      return report({
        prompt: count(usage.input_tokens),
        completion: count(usage.output_tokens),
        cached: inside(usage, 'input_tokens_details', 'cached_tokens'),
        reasoning: inside(usage, 'output_tokens_details', 'reasoning_tokens'),
      });
    case 'anthropic': {
      // In Anthropic's form `input_tokens` excludes tokens read from or written to a cache. vLLM and SGLang count the
      // same way.
      const uncached = count(usage.input_tokens);
      const cached = count(usage.cache_read_input_tokens);
      return report({
        prompt:
          uncached === undefined
            ? undefined
            : // Each count is a safe integer, but their sum may not be. A count that the wire cannot carry would close the tunnel for good.
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

/** Maximum length of a finish reason, which is stored per request. */
const MAX_FINISH_CHARS = 64;

export function readFinish(value: unknown): string | undefined {
  return typeof value === 'string' && value.length > 0 && value.length <= MAX_FINISH_CHARS ? value : undefined;
}

/**
 * The finish reason if the engine, and not the model, ended the response, because the engine shuts down, sleeps or was
 * asked to end it (https://github.com/vllm-project/vllm/issues/57082). No client knows this reason, so the response
 * would count as complete.
 */
export const ABORTED = 'abort';

/** True if the engine gave up a non-streaming response of chat or completions. */
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
 * Completes a report with estimates. If the endpoint has no tokens or the response failed, all counts are 0.
 * @param completion estimated tokens of the response; undefined if this endpoint generates none
 */
export function completeUsage(
  endpoint: Pick<Endpoint, 'usage'>,
  { status = 200, promptBytes }: { status?: number; promptBytes?: number },
  report: UsageReport,
  completion: number | undefined,
): TokenUsage {
  if (endpoint.usage === 'none' || status >= 400) return NO_USAGE;
  // Most engines count no tokens for images, and the bytes of a picture show nothing about them.
  if (endpoint.usage === 'images' && report.prompt === undefined) return NO_USAGE;
  return {
    prompt: report.prompt ?? estimateTokens(promptBytes ?? 0),
    completion: report.completion ?? completion ?? 0,
    cached: report.cached ?? 0,
    reasoning: report.reasoning ?? 0,
    estimated: report.prompt === undefined || (report.completion === undefined && completion !== undefined),
  };
}

export interface UsageMeterOptions {
  /**
   * True if the response is SSE according to the engine's content type. The client may have asked for something else.
   */
  streaming: boolean;
  /** True if the engine was made to report usage: `usageEdits` returned at least one edit. */
  dropUsageEvent: boolean;
  /** Length of the request's body, to estimate the prompt's tokens if the engine reports none. */
  promptBytes?: number;
  /** The engine's status. A response of 400 or more costs nothing. Default: 200. */
  status?: number;
  /**
   * The engine's content type; default: from the endpoint table. If the response is neither SSE nor JSON, it counts as
   * complete when it ends.
   */
  contentType?: string;
  /** Returns the milliseconds of audio in the request's body, as far as it was read. */
  uploadedMs?: () => number;
}

export interface MeterResult {
  /** Bytes that were held back and must still be forwarded. */
  flush: Uint8Array[];
  usage: TokenUsage;
  /** True if the response ended properly for this endpoint. */
  complete: boolean;
  /**
   * True if the response ended early although its framing is complete: inside a JSON value, or without the last event
   * of a stream.
   */
  cut?: boolean;
  /** True if the engine gave the response up, although its end looks like any other end. */
  aborted?: boolean;
  /** Why generation stopped, as the engine reports it: `stop`, `length`, `tool_calls`, `end_turn`, `completed` … */
  finish?: string;
}

export interface UsageMeter {
  /** Returns the bytes that may be forwarded now, in order. */
  push(chunk: Uint8Array): Uint8Array[];
  /** True if the last event of the stream has arrived. If the connection then breaks, this does not matter. */
  readonly sawLastEvent: boolean;
  /** Call once, even if the client or the engine is gone. */
  end(): MeterResult;
}
