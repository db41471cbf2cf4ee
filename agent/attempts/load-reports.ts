import type { EngineLoad } from '../../shared/routing/node-load.ts';
import type { Link } from '../../shared/wire/link.ts';

/** Shortest time between two LOADs, regardless of the number of responses. */
const LOAD_EVERY_MS = 500;
/** Time between two LOADs while an attempt runs. Gateways ignore a load that is older than a few seconds. */
const LOAD_INTERVAL_MS = 1_000;
/**
 * LOADs after the end of the last attempt, if the last LOAD reported a busy engine: it may be from just before the end.
 */
const LOADS_AFTER = 2;

/** Counts the requests at the engine and reports its load. */
export interface LoadCounter {
  begin(): void;
  end(): void;
  /** A stream has begun, after this many milliseconds. */
  firstToken(ms: number): void;
  /** The engine sent a chunk of a response. */
  heard?(): void;
  /** The engine's answer suggests that it may have lost its model. */
  lost?(): void;
  /** Asks the engine for its load, unless it was asked a moment ago. */
  look(): void;
  readonly current: EngineLoad;
  /** Why it should get no more requests now; undefined: it may get more. */
  readonly full: string | undefined;
}

/**
 * Sends LOAD with a response's head or end, and at intervals while an attempt runs. On an idle tunnel nothing is sent.
 */
export class LoadReports {
  readonly #counter: LoadCounter;
  #link: Link | undefined;
  /** True if the other end reads RATE. */
  #readsRate = false;
  #sentAt = Number.NEGATIVE_INFINITY;
  /** LOAD_EVERY_MS delayed a LOAD, which is still to be sent. */
  #isPending = false;
  /** Requests at the engine in the last LOAD, and the number of LOADs that still follow the last attempt. */
  #said = 0;
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

  /** An attempt has ended. */
  onIdle(): void {
    this.#after = LOADS_AFTER;
    this.say();
  }

  say(): void {
    const now = performance.now();
    if (this.#link === undefined) return;
    this.#isPending = now - this.#sentAt < LOAD_EVERY_MS;
    if (this.#isPending) return;
    this.#sentAt = now;
    const { tokensPerSecond, ...load } = this.#counter.current;
    if (tokensPerSecond !== undefined && this.#readsRate) this.#link.put({ type: 'rate', tokensPerSecond });
    this.#said = load.running + load.waiting;
    this.#link.put({ type: 'load', ...load });
  }

  /** `running`: attempts of this gateway at the engine. */
  tick(now: number, running: number): void {
    const since = now - this.#sentAt;
    if (this.#isPending && since >= LOAD_EVERY_MS) return this.say();
    if (since < LOAD_INTERVAL_MS) return;
    if (running === 0 && (this.#said === 0 || this.#after-- <= 0)) return;
    this.#counter.look();
    this.say();
  }
}
