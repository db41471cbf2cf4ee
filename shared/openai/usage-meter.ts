/**
 * Reads an answer's token usage while it passes. Runs in the agent between the engine and the tunnel. Bytes are never
 * changed, but the events that our own `include_usage` caused can be removed.
 */
import type { Endpoint } from './endpoints.ts';
import { JsonMeter } from './json-meter.ts';
import { StreamMeter } from './stream-meter.ts';
import { completeUsage, estimateTokens, type TokenUsage } from './usage.ts';

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
   * The engine's content type: a unary answer that is not JSON is complete whenever it ends. Default: from the endpoint
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
  /** It ended early, whatever its framing says: inside a JSON value, or without the last event of a stream. */
  cut?: boolean;
  /** The engine gave the answer up, and sent an end that looks like any other. */
  aborted?: boolean;
  /** Why generation stopped, in the engine's terms: `stop`, `length`, `tool_calls`, `end_turn`, `completed` … */
  finish?: string;
}

export interface UsageMeter {
  /** What may be forwarded now, in order. */
  push(chunk: Uint8Array): Uint8Array[];
  /** The last event of the stream has arrived; what its connection does afterwards does not matter. */
  readonly saidLast: boolean;
  /** Call once, even if the client or the engine is gone. */
  end(): MeterResult;
}

/** For answers that are neither SSE nor JSON. */
class RawMeter implements UsageMeter {
  readonly #endpoint: Endpoint;
  readonly #options: UsageMeterOptions;
  readonly saidLast = false;
  #bytes = 0;

  constructor(endpoint: Endpoint, options: UsageMeterOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
  }

  push(chunk: Uint8Array): Uint8Array[] {
    if (chunk.length === 0) return [];
    this.#bytes += chunk.length;
    return [chunk];
  }

  end(): MeterResult {
    const guess = this.#endpoint.streams ? estimateTokens(this.#bytes) : undefined;
    return { flush: [], usage: completeUsage(this.#endpoint, this.#options, {}, guess), complete: true };
  }
}

function isJson(endpoint: Endpoint, contentType: string | undefined): boolean {
  if (contentType === undefined) return endpoint.answer === 'json';
  const [type = ''] = contentType.split(';', 1);
  return /^application\/(?:[^\s;]+\+)?json$/i.test(type.trim());
}

export function createUsageMeter(endpoint: Endpoint, options: UsageMeterOptions): UsageMeter {
  if (options.streaming && endpoint.streams) return new StreamMeter(endpoint, options);
  if (isJson(endpoint, options.contentType)) return new JsonMeter(endpoint, options);
  return new RawMeter(endpoint, options);
}
