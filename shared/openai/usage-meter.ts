/**
 * Reads a response's token usage as the response passes. Runs in the agent between the engine and the tunnel. Bytes are
 * never changed, but usage events can be removed if only the gateway's edit requested them.
 */
import { AudioDuration } from './audio/audio-duration.ts';
import type { Endpoint } from './endpoints.ts';
import { JsonMeter } from './json-usage-meter.ts';
import { mediaOf } from './media-usage.ts';
import { MESSAGE_RECORDS_TYPE } from './realtime/message-records.ts';
import { RealtimeUsageMeter } from './realtime/realtime-usage-meter.ts';
import { StreamMeter } from './stream-usage-meter.ts';
import {
  completeUsage,
  estimateTokens,
  type MeterResult,
  type UsageMeter,
  type UsageMeterOptions,
} from './token-usage.ts';

/** For responses that are neither SSE nor JSON. */
class RawMeter implements UsageMeter {
  readonly #endpoint: Endpoint;
  readonly #options: UsageMeterOptions;
  readonly sawLastEvent = false;
  readonly #speech: AudioDuration | undefined;
  #bytes = 0;

  constructor(endpoint: Endpoint, options: UsageMeterOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
    // Speech in events is text, in which no audio can be measured.
    if (endpoint.media === 'speech' && !options.streaming) this.#speech = new AudioDuration(options.contentType);
  }

  push(chunk: Uint8Array): Uint8Array[] {
    if (chunk.length === 0) return [];
    this.#bytes += chunk.length;
    this.#speech?.push(chunk);
    return [chunk];
  }

  end(): MeterResult {
    const guess = this.#endpoint.streams ? estimateTokens(this.#bytes) : undefined;
    const tokens = completeUsage(this.#endpoint, this.#options, {}, guess);
    const speechMs = this.#speech?.ms ?? 0;
    return { flush: [], usage: { ...tokens, ...mediaOf(this.#endpoint, this.#options, { speechMs }) }, complete: true };
  }
}

function isJson(endpoint: Endpoint, contentType: string | undefined): boolean {
  if (contentType === undefined) return endpoint.answer === 'json';
  const [type = ''] = contentType.split(';', 1);
  return /^application\/(?:[^\s;]+\+)?json$/i.test(type.trim());
}

export function createUsageMeter(endpoint: Endpoint, options: UsageMeterOptions): UsageMeter {
  if (endpoint.webSocket === true && options.contentType === MESSAGE_RECORDS_TYPE)
    return new RealtimeUsageMeter(options);
  if (options.streaming && endpoint.streams) return new StreamMeter(endpoint, options);
  if (isJson(endpoint, options.contentType)) return new JsonMeter(endpoint, options);
  return new RawMeter(endpoint, options);
}
