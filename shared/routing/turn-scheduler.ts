import { AdaptiveTimeout } from '../timing/adaptive-timeout.ts';
import { type EnqueueResult, FairQueue, type QueueItem } from './fair-queue.ts';

/**
 * Decides when a waiting request may try a node. This class does not know which nodes are free: a turn is permission to
 * try, and the result of the try is the information. Turns are granted when a request ends at a busy node (one turn
 * each, naming that node) and by a timer.
 *
 * If a try is not reported back, it found a place, and the window grows, as in TCP. If a try found none, the window
 * shrinks.
 */
export interface QueueTurn<P> {
  place: P;
  /** The node that has a place; undefined: any. */
  session: string | undefined;
}

/**
 * A scope whose tries all fail gets one try per interval. This finds new nodes, and ends of requests that were not
 * reported.
 */
export const TURN_PROBE_MS = 250;
/**
 * A failed try reports back within this time: a round trip to a node, or to three of them. Longer if tries took longer.
 */
export const TURN_LEASE_MS = 600;
const LEASE_MAX_MS = 10_000;
/** Tries that were taken for successes and may still report back; the oldest are forgotten first. */
const LATE_MAX = 64;
const WINDOW_MAX = 32;
/** Busy nodes per scope whose ended requests are followed; other nodes are found by trying. */
const SESSIONS_MAX = 16;
/** At most this many freed places are taken from one report. A node that exaggerates gains only futile tries. */
const FREED_MAX = 64;
/**
 * Scopes with a window of their own; all others share one. Otherwise a client that invents names would get a try for
 * each name.
 */
const SCOPES_MAX = 16;
const SHARED = '…';

interface Scope {
  /** Waiting requests of this scope. */
  waiting: number;
  /** How many may try concurrently. */
  window: number;
  /** No probe before this time; milliseconds. */
  probeAt: number;
  /**
   * Running tries, with the time until which silence means success. `told`: the turn named a node, so it says nothing
   * about other nodes.
   */
  trying: Map<string, { since: number; until: number; told: boolean }>;
  /**
   * Running tries without a named node. Only these use the window; otherwise a steady flow of freed places would hide
   * other free nodes.
   */
  untold: number;
  /** Busy nodes, oldest first. */
  sessions: Set<string>;
}

/** Pure: milliseconds are passed in. */
export class TurnScheduler<P extends QueueItem> {
  readonly #queue: FairQueue<P>;
  /** Start times of tries that were not reported back in time, by name. */
  readonly #late = new Map<string, number>();
  readonly #lease = new AdaptiveTimeout({ leastMs: TURN_LEASE_MS, mostMs: LEASE_MAX_MS });
  /** Scopes of requests that wait or try; at most SCOPES_MAX plus the shared one. */
  readonly #scopes = new Map<string, Scope>();
  /** Freed places that were not granted yet, by node. */
  readonly #free = new Map<string, number>();

  constructor(max: number) {
    this.#queue = new FairQueue(max);
  }

  get size(): number {
    return this.#queue.size;
  }

  /** No request waits or tries. */
  get idle(): boolean {
    return this.#scopes.size === 0;
  }

  get queue(): Pick<FairQueue<P>, 'ahead' | 'count' | 'countOf' | 'size'> {
    return this.#queue;
  }

  /** `busy`: the nodes that had no place for it. */
  enter(asked: P, busy: readonly string[], now: number): EnqueueResult<P> {
    const place = this.#placed(asked);
    const entered = this.#queue.enter(place);
    if (entered.kind === 'full') return entered;
    if (entered.pushedOut !== undefined) this.#abandoned(entered.pushedOut.scope);
    this.#arrived(place, busy, now + TURN_PROBE_MS);
    return entered;
  }

  /** The turn found no place. If the named node had none after all, that says nothing about other nodes. */
  back(asked: P, busy: readonly string[], now: number): void {
    const tried = this.#tryOf(asked.name);
    const place = this.#placed(asked);
    this.#queue.back(place);
    const scope = this.#arrived(place, busy, now + TURN_PROBE_MS);
    const since = tried?.since ?? this.#late.get(asked.name);
    this.#late.delete(asked.name);
    if (since !== undefined && now - since <= LEASE_MAX_MS) this.#lease.answered(now - since);
    if (tried !== undefined) this.#tried(tried.id, asked.name);
    if (tried?.told) return;
    scope.window = 1;
    scope.probeAt = now + TURN_PROBE_MS;
  }

  /** The try is over, whatever its result. */
  #tried(id: string, name: string): void {
    const scope = this.#scopes.get(id);
    if (scope?.trying.get(name)?.told === false) scope.untold--;
    scope?.trying.delete(name);
    this.#drop(id);
  }

  #tryOf(name: string): { id: string; since: number; told: boolean } | undefined {
    for (const [id, { trying }] of this.#scopes) {
      const tried = trying.get(name);
      if (tried !== undefined) return { id, since: tried.since, told: tried.told };
    }
    return undefined;
  }

  #placed(asked: P): P {
    const known = this.#scopes.has(asked.scope) || this.#scopes.size < SCOPES_MAX;
    return known ? asked : { ...asked, scope: SHARED };
  }

  #arrived(place: P, busy: readonly string[], probeAt: number): Scope {
    let scope = this.#scopes.get(place.scope);
    if (scope === undefined) {
      scope = { waiting: 0, window: 1, probeAt, trying: new Map(), untold: 0, sessions: new Set() };
      this.#scopes.set(place.scope, scope);
    }
    scope.waiting++;
    for (const session of busy) {
      scope.sessions.delete(session);
      scope.sessions.add(session);
      const oldest = scope.sessions.values().next().value;
      if (scope.sessions.size > SESSIONS_MAX && oldest !== undefined) scope.sessions.delete(oldest);
    }
    return scope;
  }

  /** The request stops waiting. Returns false if it did not wait. */
  leave(name: string): boolean {
    const place = this.#queue.leave(name);
    if (place !== undefined) this.#abandoned(place.scope);
    return place !== undefined;
  }

  #abandoned(id: string): void {
    const scope = this.#scopes.get(id);
    if (scope !== undefined) scope.waiting--;
    this.#drop(id);
  }

  #drop(id: string): void {
    const scope = this.#scopes.get(id);
    if (scope?.waiting === 0 && scope.trying.size === 0) this.#scopes.delete(id);
  }

  /** True if a request of that scope waits. */
  waitsIn(scope: string): boolean {
    return (this.#scopes.get(scope)?.waiting ?? 0) > 0;
  }

  /** True if a request waits for a place at that node. */
  wants(session: string): boolean {
    for (const { waiting, sessions } of this.#scopes.values()) if (waiting > 0 && sessions.has(session)) return true;
    return false;
  }

  /** Requests ended at a node. */
  freed(session: string, count: number): void {
    if (count > 0 && this.wants(session)) this.#free.set(session, Math.min(count, FREED_MAX));
  }

  /** The turns to grant now. */
  due(now: number): QueueTurn<P>[] {
    this.#expire(now);
    const turns: QueueTurn<P>[] = [];
    for (const [session, count] of this.#free) {
      for (let n = 0; n < count; n++) {
        const place = this.#queue.next((id) => this.#scopes.get(id)?.sessions.has(session) ?? false);
        if (place === undefined) break;
        turns.push(this.#give(place, session, now));
      }
    }
    this.#free.clear();
    for (;;) {
      const place = this.#queue.next((id) => this.#isOpen(id, now));
      if (place === undefined) return turns;
      turns.push(this.#give(place, undefined, now));
    }
  }

  #isOpen(id: string, now: number): boolean {
    const scope = this.#scopes.get(id);
    return scope !== undefined && now >= scope.probeAt && scope.untold < scope.window;
  }

  #give(place: P, session: string | undefined, now: number): QueueTurn<P> {
    this.#tried(place.scope, place.name); // It may return in another role before its previous try is over.
    const scope = this.#scopes.get(place.scope);
    scope?.trying.set(place.name, { since: now, until: now + this.#lease.ms, told: session !== undefined });
    if (scope !== undefined && session === undefined) scope.untold++;
    this.#abandoned(place.scope);
    return { place, session };
  }

  #expire(now: number): void {
    for (const [id, scope] of this.#scopes) {
      for (const [name, { since, until, told }] of scope.trying) {
        if (until > now) continue;
        if (!told) scope.window = Math.min(WINDOW_MAX, scope.window + 1);
        this.#tried(id, name);
        this.#late.set(name, since);
        const [oldest] = this.#late.keys();
        if (this.#late.size > LATE_MAX && oldest !== undefined) this.#late.delete(oldest);
      }
    }
  }

  /** When to call `due` next; undefined: never. */
  get wakeAt(): number | undefined {
    let at: number | undefined;
    const sooner = (time: number) => {
      if (at === undefined || time < at) at = time;
    };
    for (const { waiting, trying, untold, window, probeAt } of this.#scopes.values()) {
      if (waiting > 0 && untold < window) sooner(probeAt);
      for (const { until } of trying.values()) sooner(until);
    }
    return at;
  }
}
