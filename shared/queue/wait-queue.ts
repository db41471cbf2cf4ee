/** A bounded, fair queue of requests that wait for a node. Timers are arguments. */

import type { QueueItem } from '../routing/fair-queue.ts';
import { type QueueTurn, TurnScheduler } from '../routing/turn-scheduler.ts';
import type { StartTimer } from '../timing/start-timer.ts';

/** Upper bound of `places`, which operators set. Each entry is an open request. */
const PLACES_MAX = 10_000;

/** Period over which turns are counted to compute the `retry-after` of refused requests. */
const RATE_MS = 30_000;
const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 60_000;

/** A request's question for a turn. Plain data: a gateway's Worker passes it to a Durable Object as JSON. */
export interface TurnRequest extends QueueItem {
  /** Nodes that refused the request because they were full. */
  busy: string[];
  /** How long the request may wait from now on, in milliseconds. */
  waitMs: number;
  /** True if the request's previous turn found no free node. */
  back: boolean;
  /** Maximum number of requests that wait for this model. */
  places: number;
  /**
   * Maximum number of requests of the same key that wait for this model. If absent, one key may use all places while
   * other keys do not need them.
   */
  placesOfKey?: number;
  /**
   * True for a stream that broke. Such requests get at most half of the places, so that the streams of many failed
   * nodes do not block everything else.
   */
  begun?: boolean;
}

export type TurnResult =
  /** A node may have a free place: try now. `session`: the node; if absent, any node. */
  | { kind: 'turn'; session?: string }
  | { kind: 'full'; retryAfterMs: number }
  /** The wait is over. */
  | { kind: 'late' };

export const WAIT_TIMED_OUT: TurnResult = { kind: 'late' };

interface QueueClock {
  /** Milliseconds since 1970. */
  now(): number;
  after: StartTimer;
}

/** Registers `leave`, which is called when the waiting client disconnects. The returned function unregisters it. */
type OnDisconnect = (leave: () => void) => () => void;

/** The queue of one model. Its state does not outlive the process. */
export class WaitQueue {
  readonly #clock: QueueClock;
  #turns: TurnScheduler<TurnRequest> | undefined;
  /** Callbacks of waiting requests by name; one for each waiting request. */
  readonly #answers = new Map<string, (answer: TurnResult) => void>();
  /** Names of waiting requests for streams that broke. */
  readonly #begun = new Set<string>();
  #stop: () => void = () => {};
  /** Number of turns granted since `#countedFrom`. */
  #granted = 0;
  #countedFrom: number;

  constructor(clock: QueueClock) {
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

  /** The request's position among those that wait for the same nodes; 1 is next. Undefined if it does not wait now. */
  position(name: string): number | undefined {
    const ahead = this.#turns?.queue.ahead(name);
    return ahead === undefined ? undefined : ahead + 1;
  }

  /** True if no request waits or tries. */
  get idle(): boolean {
    return this.#turns?.idle ?? true;
  }

  /** Resolves when the wait ends. If the client disconnects, the result is `late`, as for a wait that timed out. */
  wait(asked: TurnRequest, onDisconnect: OnDisconnect): Promise<TurnResult> {
    const turns = this.#turnsFor(asked);
    const { name, busy, waitMs } = asked;
    // If the request already waits here, its previous call was lost, so that its result has no listener.
    if (turns.remove(name)) this.#answers.get(name)?.(WAIT_TIMED_OUT);
    const now = this.#clock.now();
    if (asked.back) turns.requeue(asked, busy, now);
    else if (asked.begun && this.#begun.size >= Math.max(1, Math.floor(asked.places / 2))) {
      return Promise.resolve(this.#full());
    } else if (asked.placesOfKey !== undefined && turns.queue.countOf(asked) >= asked.placesOfKey) {
      return Promise.resolve(this.#full());
    } else {
      const enqueued = turns.enqueue(asked, busy, now);
      if (enqueued.kind === 'full') return Promise.resolve(this.#full());
      if (enqueued.evicted !== undefined) this.#answers.get(enqueued.evicted.name)?.(this.#full());
    }
    return new Promise((resolve) => {
      const leave = () => {
        turns.remove(name);
        answer(WAIT_TIMED_OUT);
        this.#grantTurns();
      };
      const stopTimer = this.#clock.after(waitMs, leave);
      const stopWatching = onDisconnect(leave);
      const answer = (result: TurnResult) => {
        stopTimer();
        stopWatching();
        if (this.#answers.get(name) === answer) {
          this.#answers.delete(name);
          this.#begun.delete(name);
        }
        resolve(result);
      };
      this.#answers.set(name, answer);
      if (asked.begun) this.#begun.add(name);
      this.#grantTurns();
    });
  }

  /** Call this when requests ended at a node for which other requests wait. */
  freed(session: string, count: number): void {
    this.#turns?.freed(session, count);
    this.#grantTurns();
  }

  /** True if a request of that scope waits. */
  hasWaiterIn(scope: string): boolean {
    return this.#turns?.hasWaiterIn(scope) ?? false;
  }

  /** True if a request waits for a free place at that node. */
  hasWaiterFor(session: string): boolean {
    return this.#turns?.hasWaiterFor(session) ?? false;
  }

  /** Ends all waits with `late`. */
  close(): void {
    for (const [name, answer] of this.#answers) {
      this.#turns?.remove(name);
      answer(WAIT_TIMED_OUT);
    }
    this.#stop();
  }

  /** The queue's maximum length is set by the first request that enters the empty queue. */
  #turnsFor({ places }: TurnRequest): TurnScheduler<TurnRequest> {
    if (this.#turns === undefined || this.#turns.idle) {
      this.#turns = new TurnScheduler(Math.max(1, Math.min(places, PLACES_MAX)));
    }
    return this.#turns;
  }

  /** The refusal because the queue is full. It estimates from the recent rate of turns when a place becomes free. */
  #full(): TurnResult {
    const elapsed = Math.max(1, this.#clock.now() - this.#countedFrom);
    const perTurn = this.#granted === 0 ? RETRY_MAX_MS : elapsed / this.#granted;
    const some = (this.#turns?.size ?? 0) / 4;
    return { kind: 'full', retryAfterMs: Math.min(RETRY_MAX_MS, Math.max(RETRY_MIN_MS, perTurn * some)) };
  }

  /** Grants the turns that are due, and sets the timer for the next one. */
  #grantTurns(): void {
    const turns = this.#turns;
    if (turns === undefined) return;
    const now = this.#clock.now();
    for (const turn of turns.due(now)) this.#grant(turn, now);
    this.#stop();
    const at = turns.wakeAt;
    this.#stop = at === undefined ? () => {} : this.#clock.after(Math.max(1, at - now), () => this.#grantTurns());
  }

  #grant({ item, session }: QueueTurn<TurnRequest>, now: number): void {
    if (now - this.#countedFrom > RATE_MS) {
      this.#granted = Math.floor(this.#granted / 2);
      this.#countedFrom = now - RATE_MS / 2;
    }
    this.#granted++;
    this.#answers.get(item.name)?.(session === undefined ? { kind: 'turn' } : { kind: 'turn', session });
  }
}
