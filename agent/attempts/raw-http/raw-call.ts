import type { ResetCode } from '../../../shared/wire/frames.ts';
import type { EngineCall, EngineEvents } from '../engine-call.ts';
import { engineHeaders } from '../engine-headers.ts';
import type { RawConnections, RawExchange, RawFailure, RawRequest } from './raw-connections.ts';
import type { ResponseHead } from './response-reader.ts';

interface RawCallOptions {
  connections: RawConnections;
  head: string;
  body: Buffer;
  events: EngineEvents;
  /** Called with each chunk of the response's body. */
  onReceived(): void;
  /** A connection that broke within this time, before a byte of the response, counts as closed while it was idle. */
  staleMs: number;
}

/** One request to the engine. It is repeated once if the engine closed its connection without reading it. */
export class RawCall implements EngineCall, RawRequest {
  readonly head: string;
  readonly body: Buffer;
  readonly #options: RawCallOptions;
  readonly #startedAt = performance.now();
  #exchange: RawExchange;
  #repeated = false;

  constructor(options: RawCallOptions) {
    this.head = options.head;
    this.body = options.body;
    this.#options = options;
    this.#exchange = options.connections.send(this);
  }

  onHead({ status, headers, sized }: ResponseHead): void {
    if (status <= 599) return this.#options.events.onHead(status, engineHeaders(headers), sized);
    // RFC 9110 §15 defines no status above 599, and a HEAD frame cannot carry one.
    this.abort();
    this.#options.events.onError('engine_closed', `the engine answered with status ${status}`);
  }

  onData(bytes: Buffer): void {
    this.#options.onReceived();
    this.#options.events.onData(bytes);
  }

  onEnd(): void {
    this.#options.events.onEnd();
  }

  onError({ message, connected, stale }: RawFailure): void {
    const { connections, events, staleMs } = this.#options;
    if (stale && !this.#repeated && performance.now() - this.#startedAt < staleMs) {
      this.#repeated = true;
      this.#exchange = connections.send(this, true);
      return;
    }
    const code: ResetCode = connected ? 'engine_closed' : 'engine_unreachable';
    events.onError(code, message);
  }

  pause(): void {
    this.#exchange.pause();
  }

  resume(): void {
    this.#exchange.resume();
  }

  abort(): void {
    this.#exchange.abort();
  }
}
