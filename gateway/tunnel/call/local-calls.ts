/**
 * Calls of tunnel objects in this process. The Node host has all objects in the process that asks them, so it hands a small request over
 * in memory. A call by a stub would copy the request, and an answer that streams would need a `fetch`.
 */
import { TransientMap } from '../../../shared/collections/transient-map.ts';
import type { AttemptRequest } from '../../../shared/upstream/attempt.ts';
import type { LocalCallResult } from './attempt-call.ts';

/** An object answers within half of this, if only to say that it takes longer. An object that was reset never answers. */
const LOOK_EVERY_MS = 1_000;
/** If more calls wait, the object is in trouble. A call by its stub then tells what is wrong. */
const WAITING_MAX = 4_096;

/** One request to an object of this process. */
export class LocalCall {
  readonly open: AttemptRequest;
  readonly body: Uint8Array;
  /** Rejects when the object was reset, and when the client left. */
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

  /** The object failed, or was reset: its successor can be asked. */
  lose(cause?: unknown): void {
    this.#reject(new Error('the object that had it is gone', { cause }));
  }

  /** The client left. */
  withdraw(): void {
    this.#reject(new Error('the client left'));
  }
}

/** By session: the objects of this process that have a socket. */
const callees = new Map<string, LocalTunnel>();

export function localTunnelOf(session: string): LocalTunnel | undefined {
  return callees.get(session);
}

/** An object that takes calls, from its socket's beginning to its end. */
export class LocalTunnel {
  readonly #session: string;
  readonly #take: (call: LocalCall) => void;
  /** Calls without an answer. `holds` asks the object whether it still works at the call. At most WAITING_MAX. */
  readonly #waiting = new TransientMap<LocalCall, { holds(): Promise<boolean>; seen: boolean }>();
  #looking: ReturnType<typeof setInterval> | null = null;

  constructor(session: string, take: (call: LocalCall) => void) {
    this.#session = session;
    this.#take = take;
    callees.set(session, this);
  }

  /** Waiting calls go on waiting: the object may get another socket. */
  close(): void {
    if (callees.get(this.#session) === this) callees.delete(this.#session);
  }

  /**
   * `holds` asks the object by its stub whether it works at the call.
   * @throws Error where the object failed or was reset, or the client left
   */
  async ask(call: LocalCall, holds: () => Promise<boolean>): Promise<LocalCallResult> {
    if (this.#waiting.size >= WAITING_MAX) return { kind: 'fetch' };
    this.#waiting.set(call, { holds, seen: false });
    this.#looking ??= setInterval(() => this.#look(), LOOK_EVERY_MS);
    try {
      this.#take(call);
      return await call.answered;
    } finally {
      this.#waiting.delete(call);
    }
  }

  /** A call that two looks found here may be lost. */
  #look(): void {
    if (this.#waiting.size === 0) {
      if (this.#looking !== null) clearInterval(this.#looking);
      this.#looking = null;
    }
    for (const call of this.#waiting.keys()) {
      const waiting = this.#waiting.get(call);
      if (waiting === undefined) continue;
      if (!waiting.seen) waiting.seen = true;
      else
        void waiting.holds().then(
          (held) => (held ? undefined : call.lose()),
          (error: unknown) => call.lose(error),
        );
    }
  }
}
