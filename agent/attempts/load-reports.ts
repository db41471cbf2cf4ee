import type { EngineLoad } from '../../shared/routing/node-load.ts';
import type { Link } from '../../shared/wire/link.ts';

/** Minimum time between two LOAD frames, regardless of the number of responses. */
const LOAD_EVERY_MS = 500;
/** Interval of LOAD frames while an attempt runs. Gateways ignore a load that is older than a few seconds. */
const LOAD_INTERVAL_MS = 1_000;
/**
 * Number of LOAD frames that follow the end of the last attempt while the engine is reported as busy, because its
 * metrics may still count that attempt.
 */
const LOADS_AFTER = 2;

/** Counts the requests at the engine and returns its load. */
export interface LoadCounter {
  begin(): void;
  end(): void;
  /** Called when a stream began, `ms` milliseconds after its request. */
  firstToken(ms: number): void;
  /** Called when the engine sent a chunk of a response. */
  onReceived?(): void;
  /** Called when an answer of the engine suggests that it may have lost its model. */
  lost?(): void;
  /** Reads the engine's load, unless that was done moments ago. */
  look(): void;
  readonly current: EngineLoad;
  /** Why the engine should get no more requests now; undefined if it may get more. */
  readonly full: string | undefined;
}

/**
 * Sends LOAD frames with a response's head or end, and at intervals while an attempt runs. On an idle tunnel it sends
 * nothing.
 */
export class LoadReports {
  readonly #counter: LoadCounter;
  #link: Link | undefined;
  /** True if the other end of the tunnel or channel reads RATE. */
  #readsRate = false;
  #sentAt = Number.NEGATIVE_INFINITY;
  /** True while LOAD_EVERY_MS delays a LOAD frame. */
  #isPending = false;
  /** True if an attempt began since the engine's load was last read. */
  #isUnread = false;
  /**
   * `#lastSent`: number of requests in the last LOAD. `#after`: number of LOADs that still have to be sent after the
   * end of the last attempt.
   */
  #lastSent = 0;
  #after = 0;

  constructor(counter: LoadCounter) {
    this.#counter = counter;
  }

  connect(link: Link, readsRate: boolean): void {
    this.#link = link;
    this.#readsRate = readsRate;
  }

  disconnect(): void {
    this.#link = undefined;
  }

  /** Call when an attempt begins. The engine gets the request first. Its load is read at the head, or at a tick. */
  onBegin(): void {
    this.#isUnread = true;
  }

  /** Call when the engine has answered. */
  onHead(): void {
    this.#readOnce();
    this.send();
  }

  #readOnce(): void {
    if (!this.#isUnread) return;
    this.#isUnread = false;
    this.#counter.look();
  }

  /** Call when an attempt has ended. */
  onIdle(): void {
    this.#after = LOADS_AFTER;
    this.send();
  }

  send(): void {
    const now = performance.now();
    if (this.#link === undefined) return;
    this.#isPending = now - this.#sentAt < LOAD_EVERY_MS;
    if (this.#isPending) return;
    this.#sentAt = now;
    const { tokensPerSecond, ...load } = this.#counter.current;
    if (tokensPerSecond !== undefined && this.#readsRate) this.#link.putSoon({ type: 'rate', tokensPerSecond });
    this.#lastSent = load.running + load.waiting;
    this.#link.putSoon({ type: 'load', ...load });
  }

  /** @param running number of this gateway's attempts at the engine */
  tick(now: number, running: number): void {
    this.#readOnce();
    const since = now - this.#sentAt;
    if (this.#isPending && since >= LOAD_EVERY_MS) return this.send();
    if (since < LOAD_INTERVAL_MS) return;
    if (running === 0 && (this.#lastSent === 0 || this.#after-- <= 0)) return;
    this.#counter.look();
    this.send();
  }
}
