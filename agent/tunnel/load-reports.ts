import type { EngineLoad } from '../../shared/routing/load.ts';
import type { Link } from '../../shared/wire/link.ts';

/** Least time between two LOADs, however many answers begin and end. */
const LOAD_EVERY_MS = 500;
/** Time between two LOADs while an attempt runs: gateways ignore a load that is older than a few seconds. */
const LOAD_AGAIN_MS = 1_000;
/** LOADs after the last attempt has ended, if the last LOAD said that the engine is busy: it may be from just before the end. */
const LOADS_AFTER = 2;

/** Counts what the engine is given, and tells how busy it is. */
export interface LoadCounter {
  begin(): void;
  end(): void;
  /** A stream has begun, after so many milliseconds. */
  firstToken(ms: number): void;
  /** The engine gave a piece of an answer. */
  heard?(): void;
  /** The engine answered as one that may not have its model any more. */
  lost?(): void;
  /** The engine may be asked what it does. */
  look(): void;
  readonly current: EngineLoad;
  /** Why it should get no more at this moment; undefined where it should. */
  readonly full: string | undefined;
}

/** Sends LOAD beside an answer's head or end, and now and then while an attempt runs. An idle tunnel carries nothing. */
export class LoadReports {
  readonly #counter: LoadCounter;
  #link: Link | undefined;
  /** The other end reads RATE. */
  #readsRate = false;
  #saidAt = Number.NEGATIVE_INFINITY;
  /** A LOAD was held back by LOAD_EVERY_MS and is still to be sent. */
  #owed = false;
  /** Requests at the engine in the last LOAD, and how many LOADs are still to follow the last attempt. */
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
    this.#owed = now - this.#saidAt < LOAD_EVERY_MS;
    if (this.#owed) return;
    this.#saidAt = now;
    const { tokensPerSecond, ...load } = this.#counter.current;
    if (tokensPerSecond !== undefined && this.#readsRate) this.#link.put({ type: 'rate', tokensPerSecond });
    this.#said = load.running + load.waiting;
    this.#link.put({ type: 'load', ...load });
  }

  /** `running`: attempts of this gateway at the engine. */
  tick(now: number, running: number): void {
    const since = now - this.#saidAt;
    if (this.#owed && since >= LOAD_EVERY_MS) return this.say();
    if (since < LOAD_AGAIN_MS) return;
    if (running === 0 && (this.#said === 0 || this.#after-- <= 0)) return;
    this.#counter.look();
    this.say();
  }
}
