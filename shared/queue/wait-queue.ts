/** A bounded, fair line of requests that wait for a node: who waits in it, and whose turn comes when. Timers are handed in. */

import type { After } from '../collections/timer.ts';
import type { Place } from '../routing/fair-queue.ts';
import { type Turn, Turns } from '../routing/turns.ts';

/** No setting makes a queue longer: each entry is an open request. */
const PLACES_MAX = 10_000;

/** Turns of so long are counted, to tell who is refused when to come again. */
const RATE_MS = 30_000;
const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 60_000;

/** How a request asks for a turn. Plain data: a gateway's Worker hands it to a Durable Object as JSON. */
export interface PlaceRequest extends Place {
  /** Nodes that were busy. */
  busy: string[];
  /** How long it may wait from now on. */
  waitMs: number;
  /** It had a turn, which came to nothing. */
  back: boolean;
  /** How many may wait for this model. */
  places: number;
  /** How many of them its key may have; absent: all, until others want them. */
  placesOfKey?: number;
  /** Of a stream that broke off: those have at most half of the places, so that a dead fleet's streams do not refuse everybody else. */
  begun?: boolean;
}

/** What it is told. */
export type PlaceAnswer =
  /** Try now. `session`: the node that has a place. */
  | { kind: 'turn'; session?: string }
  | { kind: 'full'; retryAfterMs: number }
  /** It waited as long as it may. */
  | { kind: 'late' };

export const LATE: PlaceAnswer = { kind: 'late' };

export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  after: After;
}

/** Calls `leave` when the entry's client leaves; what it returns ends that. */
type WhenLeft = (leave: () => void) => () => void;

/** Nothing of it survives its process. */
export class WaitQueue {
  readonly #clock: Clock;
  #turns: Turns<PlaceRequest> | undefined;
  /** By name, one for each place of the queue. */
  readonly #answers = new Map<string, (answer: PlaceAnswer) => void>();
  /** Those of them whose streams broke off. */
  readonly #begun = new Set<string>();
  #stop: () => void = () => {};
  /** Turns given since `#countedFrom`. */
  #given = 0;
  #countedFrom: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#countedFrom = clock.now();
  }

  get depth(): { waiting: number; interactive: number; batch: number } {
    const queue = this.#turns?.queue;
    return {
      waiting: queue?.size ?? 0,
      interactive: queue?.count('interactive') ?? 0,
      batch: queue?.count('batch') ?? 0,
    };
  }

  /** The request's place among the requests that wait for the same nodes: 1 is next. Undefined: it does not wait now. */
  position(name: string): number | undefined {
    const ahead = this.#turns?.queue.ahead(name);
    return ahead === undefined ? undefined : ahead + 1;
  }

  /** No request waits or tries. */
  get idle(): boolean {
    return this.#turns?.idle ?? true;
  }

  /** Resolves with whatever ends the wait. Who leaves is late. */
  wait(asked: PlaceRequest, whenLeft: WhenLeft): Promise<PlaceAnswer> {
    const turns = this.#turnsFor(asked);
    const { name, busy, waitMs } = asked;
    // Its former call broke, so that answer has no listener.
    if (turns.leave(name)) this.#answers.get(name)?.(LATE);
    const now = this.#clock.now();
    if (asked.back) turns.back(asked, busy, now);
    else if (asked.begun && this.#begun.size >= Math.max(1, Math.floor(asked.places / 2))) {
      return Promise.resolve(this.#full());
    } else if (asked.placesOfKey !== undefined && turns.queue.countOf(asked) >= asked.placesOfKey) {
      return Promise.resolve(this.#full());
    } else {
      const entered = turns.enter(asked, busy, now);
      if (entered.kind === 'full') return Promise.resolve(this.#full());
      if (entered.pushedOut !== undefined) this.#answers.get(entered.pushedOut.name)?.(this.#full());
    }
    return new Promise((resolve) => {
      const leave = () => {
        turns.leave(name);
        answer(LATE);
        this.#look();
      };
      const stopTimer = this.#clock.after(waitMs, leave);
      const stopWatching = whenLeft(leave);
      const answer = (given: PlaceAnswer) => {
        stopTimer();
        stopWatching();
        if (this.#answers.get(name) === answer) {
          this.#answers.delete(name);
          this.#begun.delete(name);
        }
        resolve(given);
      };
      this.#answers.set(name, answer);
      if (asked.begun) this.#begun.add(name);
      this.#look();
    });
  }

  /** Requests ended at a node that others wait for. */
  freed(session: string, count: number): void {
    this.#turns?.freed(session, count);
    this.#look();
  }

  /** Whether a request of that scope waits. */
  waitsIn(scope: string): boolean {
    return this.#turns?.waitsIn(scope) ?? false;
  }

  /** Whether a request waits for an end at that node. */
  wants(session: string): boolean {
    return this.#turns?.wants(session) ?? false;
  }

  /** Ends all waits: each request is told that it is too late. */
  close(): void {
    for (const [name, answer] of this.#answers) {
      this.#turns?.leave(name);
      answer(LATE);
    }
    this.#stop();
  }

  /** An empty queue takes the length that its next request names. */
  #turnsFor({ places }: PlaceRequest): Turns<PlaceRequest> {
    if (this.#turns === undefined || this.#turns.idle) {
      this.#turns = new Turns(Math.max(1, Math.min(places, PLACES_MAX)));
    }
    return this.#turns;
  }

  /** When a place will have become free, by the pace of late. */
  #full(): PlaceAnswer {
    const elapsed = Math.max(1, this.#clock.now() - this.#countedFrom);
    const perTurn = this.#given === 0 ? RETRY_MAX_MS : elapsed / this.#given;
    const some = (this.#turns?.size ?? 0) / 4;
    return { kind: 'full', retryAfterMs: Math.min(RETRY_MAX_MS, Math.max(RETRY_MIN_MS, perTurn * some)) };
  }

  /** Gives the turns that are due, and sets the clock for the next. */
  #look(): void {
    const turns = this.#turns;
    if (turns === undefined) return;
    const now = this.#clock.now();
    for (const turn of turns.due(now)) this.#give(turn, now);
    this.#stop();
    const at = turns.wakeAt;
    this.#stop = at === undefined ? () => {} : this.#clock.after(Math.max(1, at - now), () => this.#look());
  }

  #give({ place, session }: Turn<PlaceRequest>, now: number): void {
    if (now - this.#countedFrom > RATE_MS) {
      this.#given = Math.floor(this.#given / 2);
      this.#countedFrom = now - RATE_MS / 2;
    }
    this.#given++;
    this.#answers.get(place.name)?.(session === undefined ? { kind: 'turn' } : { kind: 'turn', session });
  }
}
