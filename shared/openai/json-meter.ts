/**
 * Reads usage, completeness and finish reason from a unary JSON answer, which may be megabytes of embeddings, in
 * bounded memory.
 */
import { textOf } from './bytes.ts';
import type { Endpoint, UsageKind } from './endpoints.ts';
import { JsonWatch, type Watched } from './json-watch.ts';
import type { Meter, MeterEnd, MeterOptions } from './meter.ts';
import { ABORTED, estimateTokens, readFinish, readUsage, settleUsage, type Usage } from './usage.ts';

const FINISH_KEYS: Readonly<Record<UsageKind, Watched | undefined>> = {
  openai: 'finish_reason',
  responses: 'status',
  anthropic: 'stop_reason',
  none: undefined,
};

function parse(bytes: Uint8Array | undefined): unknown {
  if (bytes === undefined) return undefined;
  try {
    return JSON.parse(textOf(bytes));
  } catch {
    return undefined;
  }
}

export class JsonMeter implements Meter {
  readonly #endpoint: Endpoint;
  readonly #options: MeterOptions;
  readonly saidLast = false;
  readonly #watch = new JsonWatch();
  #bytes = 0;

  constructor(endpoint: Endpoint, options: MeterOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
  }

  push(chunk: Uint8Array): Uint8Array[] {
    if (chunk.length === 0) return [];
    this.#bytes += chunk.length;
    this.#watch.push(chunk);
    return [chunk];
  }

  end(): MeterEnd {
    const finish = this.#finish();
    return {
      flush: [],
      usage: this.#usage(),
      complete: this.#watch.state === 'closed',
      ...(this.#watch.state === 'open' && { cut: true }),
      ...(finish === ABORTED && { aborted: true }),
      ...(finish !== undefined && { finish }),
    };
  }

  #usage(): Usage {
    const report = readUsage(this.#endpoint.usage, parse(this.#watch.value('usage'))) ?? {};
    const isAnswer = this.#watch.state === 'open' || this.#watch.state === 'closed';
    const generated = isAnswer ? estimateTokens(this.#bytes) : 0;
    return settleUsage(this.#endpoint, this.#options, report, this.#endpoint.streams ? generated : undefined);
  }

  #finish(): string | undefined {
    const name = FINISH_KEYS[this.#endpoint.usage];
    if (name === undefined) return undefined;
    return readFinish(parse(this.#watch.value(name)));
  }
}
