/**
 * Sends a request to an engine that may refuse the `stream_options` that the gateway added. After a refusal the request
 * is sent again without them, and the refusal is remembered for this engine.
 */
import type { Readable } from 'node:stream';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import type { OpenFrame } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import type { EngineCall, EngineConnection, EngineEvents } from './engine-call.ts';

/** Statuses of servers that refuse unknown fields: 400 like OpenAI, 422 like FastAPI. */
const REFUSALS: ReadonlySet<number> = new Set([400, 422]);
/** Names that a refusal contains if the added options caused it. The client's request had neither of these fields. */
const ADDED_OPTION_NAMES = /stream_options|include_usage/;
/** Maximum length of a refusal that is held back and searched for ADDED_OPTION_NAMES. A longer refusal is passed on. */
const REFUSAL_MAX_BYTES = 64 * 1024;
/**
 * How long a refusal is remembered. After this time a different engine may listen at this address, so the options are
 * tried again.
 */
const REFUSES_MS = 600_000;

/** Whether one engine accepts `stream_options`. */
export class UsageOptions {
  readonly #now: () => number;
  #taken = false;
  #refusedAt = Number.NEGATIVE_INFINITY;

  /** @param now milliseconds of a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get state(): 'unknown' | 'taken' | 'refused' {
    if (this.#now() - this.#refusedAt < REFUSES_MS) return 'refused';
    return this.#taken ? 'taken' : 'unknown';
  }

  answered(status: number): void {
    if (status < 300) this.#taken = true;
  }

  refused(): void {
    this.#taken = false;
    this.#refusedAt = this.#now();
  }
}

interface Options {
  client: Pick<EngineConnection, 'call'> & { readonly usage: UsageOptions };
  open: OpenFrame;
  endpoint: Endpoint;
  events: EngineEvents;
  /** The body as the client wrote it; undefined if it was not kept. */
  without(): Buffer | undefined;
}

/** One request with the gateway's `stream_options`, repeated without them if the engine refuses. */
export class StreamOptionsRetry implements EngineCall {
  readonly #options: Options;
  #call: EngineCall | undefined;
  /** A refusal that is held back until it is complete. */
  #heldRefusal:
    | { status: number; headers: HeaderList; sized: boolean; chunks: Uint8Array[]; bytes: number }
    | undefined;
  #paused = false;
  #aborted = false;

  constructor(options: Options) {
    this.#options = options;
  }

  start(content: Buffer | Readable, length: number | undefined): this {
    const { client, open, endpoint, events } = this.#options;
    this.#call = client.call(open, endpoint, content, length, {
      onHead: (status, headers, sized) => {
        client.usage.answered(status);
        if (REFUSALS.has(status)) this.#heldRefusal = { status, headers, sized, chunks: [], bytes: 0 };
        else events.onHead(status, headers, sized);
      },
      onData: (chunk) => this.#onData(chunk),
      onEnd: () => this.#onEnd(),
      onError: (code, message) => {
        this.#passOn();
        events.onError(code, message);
      },
    });
    return this;
  }

  #onData(chunk: Uint8Array): void {
    const heldRefusal = this.#heldRefusal;
    if (heldRefusal === undefined) return this.#options.events.onData(chunk);
    heldRefusal.chunks.push(chunk);
    heldRefusal.bytes += chunk.length;
    if (heldRefusal.bytes > REFUSAL_MAX_BYTES) this.#passOn();
  }

  #onEnd(): void {
    const { events } = this.#options;
    const refusal = this.#heldRefusal === undefined ? '' : Buffer.concat(this.#heldRefusal.chunks).toString();
    const body = ADDED_OPTION_NAMES.test(refusal) ? this.#options.without() : undefined;
    if (body !== undefined) return this.#sendAgain(body);
    this.#passOn();
    events.onEnd();
  }

  #sendAgain(body: Buffer): void {
    const { client, open, endpoint, events } = this.#options;
    client.usage.refused();
    this.#heldRefusal = undefined;
    if (this.#aborted) return;
    this.#call = client.call(open, endpoint, body, body.length, events);
    if (this.#paused) this.#call.pause();
  }

  /** Passes the engine's response on unchanged. */
  #passOn(): void {
    const heldRefusal = this.#heldRefusal;
    this.#heldRefusal = undefined;
    if (heldRefusal === undefined) return;
    this.#options.events.onHead(heldRefusal.status, heldRefusal.headers, heldRefusal.sized);
    for (const chunk of heldRefusal.chunks) this.#options.events.onData(chunk);
  }

  pause(): void {
    this.#paused = true;
    this.#call?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#call?.resume();
  }

  abort(): void {
    this.#aborted = true;
    this.#call?.abort();
  }
}
