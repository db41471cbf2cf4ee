/**
 * Reads usage, completeness and finish reason from a non-streaming JSON response. Uses bounded memory, because the
 * response may be megabytes of embeddings.
 */
import { decodeUtf8 } from './byte-search.ts';
import type { Endpoint, UsageKind } from './endpoints.ts';
import { JsonWatcher, type WatchedKey } from './json-watcher.ts';
import { mediaOf } from './media-usage.ts';
import {
  ABORTED,
  completeUsage,
  estimateTokens,
  type MeterResult,
  readFinish,
  readUsageJson,
  type TokenUsage,
  type UsageMeter,
  type UsageMeterOptions,
} from './token-usage.ts';

const FINISH_KEYS: Readonly<Record<UsageKind, WatchedKey | undefined>> = {
  openai: 'finish_reason',
  responses: 'status',
  anthropic: 'stop_reason',
  images: undefined,
  none: undefined,
};

const PENDING: ReadonlySet<string> = new Set(['queued', 'in_progress']);

function parse(bytes: Uint8Array | undefined): unknown {
  if (bytes === undefined) return undefined;
  try {
    return JSON.parse(decodeUtf8(bytes));
  } catch {
    return undefined;
  }
}

export class JsonMeter implements UsageMeter {
  readonly #endpoint: Endpoint;
  readonly #options: UsageMeterOptions;
  readonly sawLastEvent = false;
  readonly #watch = new JsonWatcher();
  #bytes = 0;

  constructor(endpoint: Endpoint, options: UsageMeterOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
  }

  push(chunk: Uint8Array): Uint8Array[] {
    if (chunk.length === 0) return [];
    this.#bytes += chunk.length;
    this.#watch.push(chunk);
    return [chunk];
  }

  end(): MeterResult {
    const finish = this.#finish();
    return {
      flush: [],
      usage: { ...this.#usage(), ...this.#media() },
      complete: this.#watch.state === 'closed',
      ...(this.#watch.state === 'open' && { cut: true }),
      ...(finish === ABORTED && { aborted: true }),
      ...(finish !== undefined && { finish }),
    };
  }

  #usage(): TokenUsage {
    const report = readUsageJson(this.#endpoint.usage, parse(this.#watch.value('usage'))) ?? {};
    // A response that is generated in the background has no tokens yet. They count when it is retrieved.
    if (this.#endpoint.usage === 'responses' && PENDING.has(this.#finish() ?? ''))
      return completeUsage({ usage: 'none' }, this.#options, {}, undefined);
    const isAnswer = this.#watch.state === 'open' || this.#watch.state === 'closed';
    const generated = isAnswer ? estimateTokens(this.#bytes) : 0;
    return completeUsage(this.#endpoint, this.#options, report, this.#endpoint.streams ? generated : undefined);
  }

  #media() {
    const seconds = { usage: parse(this.#watch.value('usage')), duration: parse(this.#watch.value('duration')) };
    return mediaOf(this.#endpoint, this.#options, { ...seconds, images: this.#watch.items });
  }

  #finish(): string | undefined {
    const name = FINISH_KEYS[this.#endpoint.usage];
    if (name === undefined) return undefined;
    return readFinish(parse(this.#watch.value(name)));
  }
}
