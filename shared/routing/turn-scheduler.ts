import { AdaptiveTimeout } from '../timing/adaptive-timeout.ts';
import { type EnqueueResult, FairQueue, type QueueItem } from './fair-queue.ts';

/** Permission for one try of one waiting request. */
export interface QueueTurn<P> {
  item: P;
  /** The node at which a request has ended; undefined if the turn is for any node. */
  session: string | undefined;
}

/**
 * Interval between tries in a scope in which all tries fail. These tries find new nodes, and nodes at which requests
 * ended without a report.
 */
export const TURN_PROBE_MS = 250;
/**
 * Minimum time in which a failed try must be reported, enough for round trips to three nodes. The time grows if earlier
 * reports took longer.
 */
export const TURN_LEASE_MS = 600;
const LEASE_MAX_MS = 10_000;
/**
 * Maximum number of remembered tries that counted as successful but may still be reported as failed; the oldest is
 * forgotten.
 */
const LATE_MAX = 64;
const WINDOW_MAX = 32;
/**
 * Maximum number of remembered busy nodes per scope. When a request ends at one of them, a waiting request of the scope
 * gets a turn. Other nodes are found by trying.
 */
const SESSIONS_MAX = 16;
/**
 * Maximum number of ended requests that are counted from one report. If a node exaggerates, it causes at most this many
 * tries in vain.
 */
const FREED_MAX = 64;
/**
 * Maximum number of scopes with their own window; all further scopes share one. Without the limit, a client that
 * invents scopes would get a try for each of them.
 */
const SCOPES_MAX = 16;
const SHARED = '…';

interface Scope {
  /** Number of waiting requests in this scope. */
  waiting: number;
  /** How many requests of this scope may try at the same time. */
  window: number;
  /** Earliest time of the next probe, in milliseconds. */
  probeAt: number;
  /**
   * Running tries by request name. If a try is not reported as failed before `until`, it counts as successful.
   * `targeted` is true if the turn named a node; the result of such a try shows nothing about other nodes.
   */
  trying: Map<string, { since: number; until: number; targeted: boolean }>;
  /**
   * Number of running tries without a named node. Only these count against the window; otherwise a steady flow of ended
   * requests at one node would prevent tries of other free nodes.
   */
  untargeted: number;
  /** Busy nodes of this scope, oldest first. */
  sessions: Set<string>;
}

/**
 * Decides when a waiting request may try a node. This class does not know which nodes are free: it grants a turn, which
 * is permission for one try, and the result of the try shows whether a node was free. It grants turns when a request
 * ends at a busy node (one turn each, for that node) and by a timer. Callers pass times in milliseconds.
 *
 * A try counts as successful unless it is reported as failed within its lease. After a success the window grows, as in
 * TCP; after a failure it shrinks.
 */
export class TurnScheduler<P extends QueueItem> {
  readonly #queue: FairQueue<P>;
  /**
   * Start times, by request name, of tries that were not reported within their lease. A late report still adapts the
   * lease.
   */
  readonly #late = new Map<string, number>();
  readonly #lease = new AdaptiveTimeout({ leastMs: TURN_LEASE_MS, mostMs: LEASE_MAX_MS });
  /** Scopes that have a waiting or trying request; at most SCOPES_MAX plus the shared one. */
  readonly #scopes = new Map<string, Scope>();
  /** Number of requests that ended at each node and for which no turn was granted yet. */
  readonly #free = new Map<string, number>();

  constructor(max: number) {
    this.#queue = new FairQueue(max);
  }

  get size(): number {
    return this.#queue.size;
  }

  /** True if no request waits or tries. */
  get idle(): boolean {
    return this.#scopes.size === 0;
  }

  get queue(): Pick<FairQueue<P>, 'ahead' | 'count' | 'countOf' | 'size'> {
    return this.#queue;
  }

  /** Adds a waiting request. `busy`: the nodes that refused it because they were full. */
  enqueue(request: P, busy: readonly string[], now: number): EnqueueResult<P> {
    const item = this.#toItem(request);
    const result = this.#queue.enqueue(item);
    if (result.kind === 'full') return result;
    if (result.evicted !== undefined) this.#removeWaiting(result.evicted.scope);
    this.#addWaiting(item, busy, now + TURN_PROBE_MS);
    return result;
  }

  /** Reports that the request's try found no free node, so that the request waits again. */
  requeue(request: P, busy: readonly string[], now: number): void {
    const attempt = this.#tryOf(request.name);
    const item = this.#toItem(request);
    this.#queue.requeue(item);
    const scope = this.#addWaiting(item, busy, now + TURN_PROBE_MS);
    const since = attempt?.since ?? this.#late.get(request.name);
    this.#late.delete(request.name);
    if (since !== undefined && now - since <= LEASE_MAX_MS) this.#lease.answered(now - since);
    if (attempt !== undefined) this.#endTry(attempt.id, request.name);
    if (attempt?.targeted) return;
    scope.window = 1;
    scope.probeAt = now + TURN_PROBE_MS;
  }

  /** Ends the try, with any result. */
  #endTry(id: string, name: string): void {
    const scope = this.#scopes.get(id);
    if (scope?.trying.get(name)?.targeted === false) scope.untargeted--;
    scope?.trying.delete(name);
    this.#removeIfIdle(id);
  }

  #tryOf(name: string): { id: string; since: number; targeted: boolean } | undefined {
    for (const [id, { trying }] of this.#scopes) {
      const attempt = trying.get(name);
      if (attempt !== undefined) return { id, since: attempt.since, targeted: attempt.targeted };
    }
    return undefined;
  }

  #toItem(request: P): P {
    const known = this.#scopes.has(request.scope) || this.#scopes.size < SCOPES_MAX;
    return known ? request : { ...request, scope: SHARED };
  }

  #addWaiting(item: P, busy: readonly string[], probeAt: number): Scope {
    let scope = this.#scopes.get(item.scope);
    if (scope === undefined) {
      scope = { waiting: 0, window: 1, probeAt, trying: new Map(), untargeted: 0, sessions: new Set() };
      this.#scopes.set(item.scope, scope);
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

  /** The request stops waiting. Returns false if it was not waiting. */
  remove(name: string): boolean {
    const item = this.#queue.remove(name);
    if (item !== undefined) this.#removeWaiting(item.scope);
    return item !== undefined;
  }

  #removeWaiting(id: string): void {
    const scope = this.#scopes.get(id);
    if (scope !== undefined) scope.waiting--;
    this.#removeIfIdle(id);
  }

  #removeIfIdle(id: string): void {
    const scope = this.#scopes.get(id);
    if (scope?.waiting === 0 && scope.trying.size === 0) this.#scopes.delete(id);
  }

  /** True if a request of that scope is waiting. */
  hasWaiterIn(scope: string): boolean {
    return (this.#scopes.get(scope)?.waiting ?? 0) > 0;
  }

  /** True if a request is waiting for that node. */
  hasWaiterFor(session: string): boolean {
    for (const { waiting, sessions } of this.#scopes.values()) if (waiting > 0 && sessions.has(session)) return true;
    return false;
  }

  /** Reports that `count` requests ended at a node. */
  freed(session: string, count: number): void {
    if (count > 0 && this.hasWaiterFor(session)) this.#free.set(session, Math.min(count, FREED_MAX));
  }

  /** The turns to grant at `now`. */
  due(now: number): QueueTurn<P>[] {
    this.#expire(now);
    const turns: QueueTurn<P>[] = [];
    for (const [session, count] of this.#free) {
      for (let n = 0; n < count; n++) {
        const item = this.#queue.dequeue((id) => this.#scopes.get(id)?.sessions.has(session) ?? false);
        if (item === undefined) break;
        turns.push(this.#grant(item, session, now));
      }
    }
    this.#free.clear();
    for (;;) {
      const item = this.#queue.dequeue((id) => this.#isOpen(id, now));
      if (item === undefined) return turns;
      turns.push(this.#grant(item, undefined, now));
    }
  }

  #isOpen(id: string, now: number): boolean {
    const scope = this.#scopes.get(id);
    return scope !== undefined && now >= scope.probeAt && scope.untargeted < scope.window;
  }

  #grant(item: P, session: string | undefined, now: number): QueueTurn<P> {
    // The request may still have an earlier try that was not reported.
    this.#endTry(item.scope, item.name);
    const scope = this.#scopes.get(item.scope);
    scope?.trying.set(item.name, { since: now, until: now + this.#lease.ms, targeted: session !== undefined });
    if (scope !== undefined && session === undefined) scope.untargeted++;
    this.#removeWaiting(item.scope);
    return { item, session };
  }

  #expire(now: number): void {
    for (const [id, scope] of this.#scopes) {
      for (const [name, { since, until, targeted }] of scope.trying) {
        if (until > now) continue;
        if (!targeted) scope.window = Math.min(WINDOW_MAX, scope.window + 1);
        this.#endTry(id, name);
        this.#late.set(name, since);
        const [oldest] = this.#late.keys();
        if (this.#late.size > LATE_MAX && oldest !== undefined) this.#late.delete(oldest);
      }
    }
  }

  /** When `due` must be called next; undefined if nothing waits for a time. */
  get wakeAt(): number | undefined {
    let at: number | undefined;
    const sooner = (time: number) => {
      if (at === undefined || time < at) at = time;
    };
    for (const { waiting, trying, untargeted, window, probeAt } of this.#scopes.values()) {
      if (waiting > 0 && untargeted < window) sooner(probeAt);
      for (const { until } of trying.values()) sooner(until);
    }
    return at;
  }
}
