/**
 * Records what one node's requests show about its engine: how long requests wait for a first byte, and for how long the
 * engine has sent no byte although requests wait.
 */
import { type FirstByteCounts, FirstByteTimes, type RequestShape } from './first-byte-times.ts';
import type { NodeEvidence, PeerEvidence, UnansweredRequest } from './hang-detector.ts';

/**
 * Maximum number of unanswered requests that are remembered after their clients disconnected, while one silence lasts.
 * A client that retries adds one every few seconds.
 */
const LEFT_MAX = 64;

/**
 * Maximum time between two ticks that counts as the engine's silence, because a process that was suspended in between
 * could not receive the engine's bytes.
 */
const TICK_MAX_MS = 1_000;

interface Waiting {
  shape: RequestShape;
  moved: boolean;
  since: number;
}

/** `K` identifies a request. All times are milliseconds of one clock, and are arguments. */
export class FirstByteLog<K> {
  readonly #times = new FirstByteTimes();
  /** Requests that wait for their first byte. Bounded by the open requests of the node. */
  readonly #waiting = new Map<K, Waiting>();
  #abandoned: UnansweredRequest[] = [];
  #silentMs = 0;
  #tickedAt: number | undefined;
  #answeredAt: number | undefined;

  has(key: K): boolean {
    return this.#waiting.has(key);
  }

  /**
   * Call when the engine has received the whole request.
   * @param moved true if an engine at another node hung on the request before
   */
  waits(key: K, shape: RequestShape, moved: boolean, now: number): void {
    this.#waiting.set(key, { shape, moved, since: now });
  }

  /** Milliseconds since the engine received the request; undefined if it does not wait. */
  waitedMs(key: K, now: number): number | undefined {
    const waiting = this.#waiting.get(key);
    return waiting && now - waiting.since;
  }

  /** Call when the first byte of the response has come, `ms` after the request was sent to the engine. */
  answered(key: K, shape: RequestShape, ms: number, now: number): void {
    this.#waiting.delete(key);
    this.#times.add(shape, ms);
    this.#answeredAt = now;
    this.works();
  }

  /** Call when the engine has sent a byte of any response. */
  works(): void {
    this.#abandoned = [];
    this.#silentMs = 0;
  }

  /** Call when the client has disconnected. */
  left(key: K, now: number): void {
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return;
    this.#waiting.delete(key);
    this.#abandoned.push(unanswered(waiting, false, now));
    if (this.#abandoned.length > LEFT_MAX) this.#abandoned.shift();
  }

  /** Call when the request has ended in another way, which shows nothing about the engine's speed. */
  over(key: K): void {
    this.#waiting.delete(key);
  }

  /**
   * Call periodically.
   * @param connected true if a response could have arrived
   */
  tick(now: number, connected: boolean): void {
    const passed = this.#tickedAt === undefined ? 0 : now - this.#tickedAt;
    this.#tickedAt = now;
    if (connected && this.#waiting.size > 0) this.#silentMs += Math.min(TICK_MAX_MS, Math.max(0, passed));
  }

  get silentMs(): number {
    return this.#silentMs;
  }

  get times(): FirstByteCounts {
    return this.#times.counts;
  }

  evidence(now: number): NodeEvidence {
    const waiting = Array.from(this.#waiting.values(), (request) => unanswered(request, true, now));
    return { silentMs: this.#silentMs, unanswered: [...waiting, ...this.#abandoned], times: this.times };
  }

  /** This node's evidence for the judgment of another node. */
  asPeer(now: number, suspected: boolean): PeerEvidence {
    const answeredAgoMs = this.#answeredAt === undefined ? undefined : now - this.#answeredAt;
    return { silentMs: this.#silentMs, answeredAgoMs, suspected, times: this.times };
  }
}

function unanswered({ shape, moved, since }: Waiting, waiting: boolean, now: number): UnansweredRequest {
  return { shape, waitedMs: now - since, waiting, moved };
}
