/**
 * Requests to an engine that may refuse the `stream_options` that the gateway added. After a refusal the request is
 * sent again without them, and the refusal is remembered for this engine.
 */
import type { Readable } from 'node:stream';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import type { OpenFrame } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/headers.ts';
import type { EngineCall, EngineClient, EngineEvents } from './engine-client.ts';

/** Statuses of servers with strict schemas: 400 as OpenAI's, 422 as FastAPI's. */
const REFUSALS: ReadonlySet<number> = new Set([400, 422]);
/** Names by which a refusal mentions the added options. The client sent neither. */
const SPEAKS_OF_IT = /stream_options|include_usage/;
/** Longer refusals quote the request; the reason is before that. */
const REFUSAL_MAX_BYTES = 64 * 1024;
/** After this long the engine at this address may be another one. */
const REFUSES_MS = 600_000;

/** Knowledge about one engine. */
export class UsageOptions {
  readonly #now: () => number;
  #taken = false;
  #refusedAt = Number.NEGATIVE_INFINITY;

  /** `now`: milliseconds of a monotonic clock. */
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
  client: EngineClient;
  open: OpenFrame;
  endpoint: Endpoint;
  events: EngineEvents;
  /** The body as the client wrote it; undefined: it was not kept. */
  without(): Buffer | undefined;
}

/** One request with our `stream_options`. */
export class UsageCall implements EngineCall {
  readonly #options: Options;
  #call: EngineCall | undefined;
  /** A refusal, until it is complete. */
  #held: { status: number; headers: HeaderList; sized: boolean; chunks: Uint8Array[]; bytes: number } | undefined;
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
        if (REFUSALS.has(status)) this.#held = { status, headers, sized, chunks: [], bytes: 0 };
        else events.onHead(status, headers, sized);
      },
      onData: (chunk) => this.#onData(chunk),
      onEnd: () => this.#onEnd(),
      onError: (code, message) => {
        this.#letGo();
        events.onError(code, message);
      },
    });
    return this;
  }

  #onData(chunk: Uint8Array): void {
    const held = this.#held;
    if (held === undefined) return this.#options.events.onData(chunk);
    held.chunks.push(chunk);
    held.bytes += chunk.length;
    if (held.bytes > REFUSAL_MAX_BYTES) this.#letGo();
  }

  #onEnd(): void {
    const { events } = this.#options;
    const said = this.#held === undefined ? '' : Buffer.concat(this.#held.chunks).toString();
    const body = SPEAKS_OF_IT.test(said) ? this.#options.without() : undefined;
    if (body !== undefined) return this.#again(body);
    this.#letGo();
    events.onEnd();
  }

  #again(body: Buffer): void {
    const { client, open, endpoint, events } = this.#options;
    client.usage.refused();
    this.#held = undefined;
    if (this.#aborted) return;
    this.#call = client.call(open, endpoint, body, body.length, events);
    if (this.#paused) this.#call.pause();
  }

  /** Passes the engine's response on unchanged. */
  #letGo(): void {
    const held = this.#held;
    this.#held = undefined;
    if (held === undefined) return;
    this.#options.events.onHead(held.status, held.headers, held.sized);
    for (const chunk of held.chunks) this.#options.events.onData(chunk);
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
