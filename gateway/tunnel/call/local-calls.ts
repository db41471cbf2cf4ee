/**
 * Calls of tunnel objects in this process. On the Node host all objects are in the process that calls them, so a small
 * request is passed in memory. A call through a stub would copy the request, and a streaming response would need a
 * `fetch`.
 */

import type { AttemptRequest, ResultOf } from '../../../shared/attempts/attempt-request.ts';
import { TransientMap } from '../../../shared/collections/transient-map.ts';

/**
 * Interval at which calls without an answer are checked. An object answers within half of this time, if necessary with
 * the result `fetch`. An object that was reset never answers.
 */
const POLL_MS = 1_000;
/**
 * Maximum calls that wait for one object. If more wait, the object has a problem; further calls use the stub, which
 * reports the error.
 */
const WAITING_MAX = 4_096;

/** The result of a call in this process. Unlike a call through a stub, it can also be an offloaded response. */
export type LocalCallResult = ResultOf<'whole' | 'offloaded' | 'fetch' | 'failure'>;

/** One request for an attempt to an object in this process. */
export class LocalCall {
  readonly open: AttemptRequest;
  readonly body: Uint8Array;
  /** Settled with the result. Rejects if the object was reset, or if the client disconnected. */
  readonly answered: Promise<LocalCallResult>;
  readonly #resolve: (result: LocalCallResult) => void;
  readonly #reject: (error: Error) => void;

  constructor(open: AttemptRequest, body: Uint8Array) {
    this.open = open;
    this.body = body;
    const { promise, resolve, reject } = Promise.withResolvers<LocalCallResult>();
    this.answered = promise;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  answer(result: LocalCallResult): void {
    this.#resolve(result);
  }

  /** Ends the call because the object failed or was reset; its next instance can be called. */
  lose(cause?: unknown): void {
    this.#reject(new Error('the object of the call was reset', { cause }));
  }

  /** Ends the call because the client disconnected. */
  withdraw(): void {
    this.#reject(new Error('the client disconnected'));
  }
}

/** Objects of this process that have a socket, by session. */
const callees = new Map<string, LocalTunnel>();

export function localTunnelOf(session: string): LocalTunnel | undefined {
  return callees.get(session);
}

/** Called when an agent has connected to this process, or left it. */
type TunnelListener = (session: string, isOpen: boolean) => void;
const listeners = new Set<TunnelListener>();

/** Returns the sessions that are connected now. @returns also a function that ends the subscription */
export function watchLocalTunnels(listener: TunnelListener): { sessions(): string[]; stop(): void } {
  listeners.add(listener);
  return { sessions: () => [...callees.keys()], stop: () => void listeners.delete(listener) };
}

/** A tunnel object that accepts calls in this process while its socket is open. */
export class LocalTunnel {
  readonly #session: string;
  readonly #take: (call: LocalCall) => void;
  /** Calls without an answer, at most WAITING_MAX. `holds` asks the object whether it is still working on the call. */
  readonly #waiting = new TransientMap<LocalCall, { holds(): Promise<boolean>; seen: boolean }>();
  #pollTimer: ReturnType<typeof setInterval> | null = null;

  constructor(session: string, take: (call: LocalCall) => void) {
    this.#session = session;
    this.#take = take;
    callees.set(session, this);
    for (const listener of listeners) listener(session, true);
  }

  /** Waiting calls stay, because the object may get another socket. */
  close(): void {
    if (callees.get(this.#session) !== this) return;
    callees.delete(this.#session);
    for (const listener of listeners) listener(this.#session, false);
  }

  /**
   * Passes a call to the object and waits for the result. `holds` asks the object through its stub whether it is still
   * working on the call.
   * @throws Error if the object failed or was reset, or if the client disconnected
   */
  async ask(call: LocalCall, holds: () => Promise<boolean>): Promise<LocalCallResult> {
    if (this.#waiting.size >= WAITING_MAX) return { kind: 'fetch' };
    this.#waiting.set(call, { holds, seen: false });
    this.#pollTimer ??= setInterval(() => this.#poll(), POLL_MS);
    try {
      this.#take(call);
      return await call.answered;
    } finally {
      this.#waiting.delete(call);
    }
  }

  /** Checks calls. A call that is still here at the second check may be lost. */
  #poll(): void {
    if (this.#waiting.size === 0) {
      if (this.#pollTimer !== null) clearInterval(this.#pollTimer);
      this.#pollTimer = null;
    }
    for (const call of this.#waiting.keys()) {
      const waiting = this.#waiting.get(call);
      if (waiting === undefined) continue;
      if (!waiting.seen) waiting.seen = true;
      else
        waiting.holds().then(
          (held) => (held ? undefined : call.lose()),
          (error: unknown) => call.lose(error),
        );
    }
  }
}
