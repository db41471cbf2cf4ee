import { AdaptiveTimeout } from '../patience/adaptive-timeout.ts';
import { type Entered, FairQueue, type Place } from './fair-queue.ts';

/**
 * When a request that waits for a node may try one. This class does not know whether a node is free: a turn is a try, and its outcome
 * tells. Two things bring turns: the end of a request at a node that was busy (one turn for each, with that node's name), and time.
 * A try that is not reported back found a place; then one more may try at once next time, as in TCP. A try that found none closes the
 * window again.
 */
export interface Turn<P> {
  place: P;
  /** The node that has a place; undefined: any. */
  session: string | undefined;
}

/** A scope whose tries find nothing has one this often: it finds new nodes, and ends of requests that were not reported. */
export const PROBE_MS = 250;
/** A try that finds nothing reports back sooner: to a node and back, to three of them if need be. Longer where tries took longer. */
export const LEASE_MS = 600;
const LEASE_MAX_MS = 10_000;
/** Tries that were taken for successes and may still report back; the oldest are forgotten first. */
const LATE_MAX = 64;
const WINDOW_MAX = 32;
/** Busy nodes that one scope is told the ends of; others are found by trying. */
const SESSIONS_MAX = 16;
/** Ends that one word of a node is believed to tell of: who lies has nothing of it but tries that find nothing. */
const FREED_MAX = 64;
/** Scopes with tries of their own; all others share one. Else a client that names ever new nodes had as many tries as names. */
const SCOPES_MAX = 16;
const SHARED = '…';

interface Scope {
  /** In the queue, of this scope. */
  waiting: number;
  /** How many may try at once. */
  window: number;
  /** No try before it; milliseconds. */
  probeAt: number;
  /** Who tries now, until when nothing said means success. `told`: a node had a place, which says nothing of more of them. */
  trying: Map<string, { since: number; until: number; told: boolean }>;
  /** Of them the requests that were not told: the window is theirs alone, or ends that keep coming would hide what else is free. */
  untold: number;
  /** Nodes that were busy, oldest first. */
  sessions: Set<string>;
}

/** Pure: milliseconds are handed in. */
export class Turns<P extends Place> {
  readonly #queue: FairQueue<P>;
  /** When tries began that were not reported back in time, by name. */
  readonly #late = new Map<string, number>();
  readonly #lease = new AdaptiveTimeout({ leastMs: LEASE_MS, mostMs: LEASE_MAX_MS });
  /** Scopes of requests that wait or try; at most SCOPES_MAX and the shared one. */
  readonly #scopes = new Map<string, Scope>();
  /** Places that became free and were not given yet, by node. */
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
  enter(asked: P, busy: readonly string[], now: number): Entered<P> {
    const place = this.#placed(asked);
    const entered = this.#queue.enter(place);
    if (entered.kind === 'full') return entered;
    if (entered.pushedOut !== undefined) this.#left(entered.pushedOut.scope);
    this.#arrived(place, busy, now + PROBE_MS);
    return entered;
  }

  /** Its turn came to nothing. A node that spoke of a place and had none says nothing of the others. */
  back(asked: P, busy: readonly string[], now: number): void {
    const tried = this.#tryOf(asked.name);
    const place = this.#placed(asked);
    this.#queue.back(place);
    const scope = this.#arrived(place, busy, now + PROBE_MS);
    const since = tried?.since ?? this.#late.get(asked.name);
    this.#late.delete(asked.name);
    if (since !== undefined && now - since <= LEASE_MAX_MS) this.#lease.answered(now - since);
    if (tried !== undefined) this.#tried(tried.id, asked.name);
    if (tried?.told) return;
    scope.window = 1;
    scope.probeAt = now + PROBE_MS;
  }

  /** Its try is over, whatever came of it. */
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

  /** It does not wait any more. False: it did not. */
  leave(name: string): boolean {
    const place = this.#queue.leave(name);
    if (place !== undefined) this.#left(place.scope);
    return place !== undefined;
  }

  #left(id: string): void {
    const scope = this.#scopes.get(id);
    if (scope !== undefined) scope.waiting--;
    this.#drop(id);
  }

  #drop(id: string): void {
    const scope = this.#scopes.get(id);
    if (scope?.waiting === 0 && scope.trying.size === 0) this.#scopes.delete(id);
  }

  /** Whether a request of that scope waits. */
  waitsIn(scope: string): boolean {
    return (this.#scopes.get(scope)?.waiting ?? 0) > 0;
  }

  /** Whether a request waits for an end at that node. */
  wants(session: string): boolean {
    for (const { waiting, sessions } of this.#scopes.values()) if (waiting > 0 && sessions.has(session)) return true;
    return false;
  }

  /** Requests ended at a node. */
  freed(session: string, count: number): void {
    if (count > 0 && this.wants(session)) this.#free.set(session, Math.min(count, FREED_MAX));
  }

  /** Whose turn it is now. */
  due(now: number): Turn<P>[] {
    this.#expire(now);
    const turns: Turn<P>[] = [];
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

  #give(place: P, session: string | undefined, now: number): Turn<P> {
    this.#tried(place.scope, place.name); // it may be back in another role, before its former try was over
    const scope = this.#scopes.get(place.scope);
    scope?.trying.set(place.name, { since: now, until: now + this.#lease.ms, told: session !== undefined });
    if (scope !== undefined && session === undefined) scope.untold++;
    this.#left(place.scope);
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

  /** When to look again; undefined: nothing will be due. */
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
