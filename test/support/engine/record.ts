import { patience } from '../patience.ts';

/** The mock engine's view of each request, for tests. */
export interface EngineRequest {
  id: number;
  method: string;
  /** Path and query, as received. */
  url: string;
  /** Headers by their lower-case names. */
  headers: Record<string, string>;
  bodyBytes: number;
  /** SHA-256 of the received body, in hex. Empty until the whole body was read. */
  bodySha256: string;
  /** The first 64 KiB of the body as text. */
  bodyStart: string;
  /** Milliseconds since 1970. */
  arrivedAt: number;
  /** Time at which the response was sent completely. */
  finishedAt?: number;
  /** Time at which the client disconnected before the response was complete. */
  abortedAt?: number;
  headAt?: number;
  tokensSent: number;
}

/** Maximum number of kept requests. The oldest are dropped first. */
const KEPT = 10_000;

interface Waiting {
  matches(request: EngineRequest): boolean;
  resolve(request: EngineRequest): void;
}

export class RequestLog {
  readonly requests: EngineRequest[] = [];
  #next = 1;
  #running = 0;
  /** Tokens that were sent in requests that were dropped. */
  #written = 0;
  readonly #waiting = new Set<Waiting>();

  /** Requests that are neither finished nor aborted. */
  get running(): number {
    return this.#running;
  }

  /** Tokens that the engine has sent since its start. */
  get tokens(): number {
    return this.requests.reduce((sum, { tokensSent }) => sum + tokensSent, this.#written);
  }

  begin(method: string, url: string, headers: Record<string, string>): EngineRequest {
    const request: EngineRequest = {
      id: this.#next++,
      method,
      url,
      headers,
      bodyBytes: 0,
      bodySha256: '',
      bodyStart: '',
      arrivedAt: Date.now(),
      tokensSent: 0,
    };
    this.requests.push(request);
    if (this.requests.length > KEPT) this.#written += this.requests.shift()?.tokensSent ?? 0;
    this.#running++;
    return request;
  }

  end(request: EngineRequest, how: 'finished' | 'aborted'): void {
    if (request.finishedAt !== undefined || request.abortedAt !== undefined) return;
    this.#running--;
    if (how === 'finished') request.finishedAt = Date.now();
    else request.abortedAt = Date.now();
    this.changed(request);
  }

  /** Resolves the waits that this request now satisfies. */
  changed(request: EngineRequest): void {
    for (const one of this.#waiting) if (one.matches(request)) one.resolve(request);
  }

  /** The first matching request, past or future; rejects if it hangs: see `patience`. */
  when(
    matches: (request: EngineRequest) => boolean,
    withinMs: number,
    what = 'a matching request',
  ): Promise<EngineRequest> {
    const seen = this.requests.find(matches);
    if (seen !== undefined) return Promise.resolve(seen);
    return new Promise((resolve, reject) => {
      const one: Waiting = {
        matches,
        resolve: (request) => {
          clearTimeout(timer);
          this.#waiting.delete(one);
          resolve(request);
        },
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(one);
        reject(new Error(`the engine did not see ${what} within ${patience(withinMs)} ms`));
      }, patience(withinMs));
      this.#waiting.add(one);
    });
  }
}
