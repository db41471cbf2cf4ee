import { isRecent } from '../timing/is-recent.ts';
import { EventRate } from './event-rate.ts';
import type { LiveNodes } from './live-nodes.ts';
import type { BreakerState } from './node-load.ts';
import type { RequestOutcome } from './retry-policy.ts';

/** Number of consecutive failures that opens the breaker. */
const CONSECUTIVE = 5;

/**
 * The breaker also opens if this share of the requests of the last 10 s failed and there were at least REQUESTS_MIN.
 */
const RATIO = 0.5;
const REQUESTS_MIN = 10;

/**
 * The breaker opens only if the node fails at least this many times as often as the other nodes. If all nodes fail
 * equally often (because every engine refuses the request, or because they share a file system that fails), opening
 * breakers would only burden the remaining nodes.
 */
const OUTLIER_FACTOR = 2;
/** Minimum number of requests at the other nodes before OUTLIER_FACTOR is applied. */
const OTHERS_MIN = 5;

/** First open period. It doubles after each failed probe, up to OPEN_MAX_MS. */
const OPEN_MS = 5_000;
const OPEN_MAX_MS = 60_000;

/** If a probe takes longer than this, the next probe may start. */
const PROBE_MS = 30_000;

/** Maximum time after a report to the registry until all isolates know of it. */
const REPORT_DELAY_MAX_MS = 1_000;

/** Maximum number of nodes with recent failures that are remembered; the oldest is forgotten. */
const SUSPECTS_MAX = 1_000;

/**
 * True if the breaker is open. If it would stay open longer than `OPEN_MAX_MS` from now, it opened before the clock was
 * set back, so it counts as half-open.
 */
function isOpen({ until }: BreakerState, now: number): boolean {
  return now < until && until - now <= OPEN_MAX_MS;
}

interface Suspect {
  requests: EventRate;
  failures: EventRate;
  inARow: number;
}

/**
 * One circuit breaker per node, kept by one isolate or by one agent's ingress: closed → open → half-open → closed or
 * open again (Nygard, Release It!, ch. 5). Breaker states are written to `live`, which also receives the states that
 * other isolates report.
 *
 * A request to a node that never fails costs two additions.
 */
export class CircuitBreakers {
  readonly #live: LiveNodes;
  readonly #suspects = new Map<string, Suspect>();
  /** Start time of the probe of each half-open node. Bounded by `live.tripped`. */
  readonly #probes = new Map<string, number>();
  readonly #requests = new EventRate();
  readonly #failures = new EventRate();

  constructor(live: LiveNodes) {
    this.#live = live;
  }

  /**
   * Returns the sessions of the nodes that are avoided while others are available.
   * @param mayProbe true if the request can be sent again, so that it may serve as a probe
   */
  avoided(now: number, mayProbe: boolean): string[] {
    const sessions: string[] = [];
    for (const [session, breaker] of this.#live.tripped) {
      if (isOpen(breaker, now) || !mayProbe || this.#isProbed(session, now)) sessions.push(session);
    }
    return sessions;
  }

  #isProbed(session: string, now: number): boolean {
    const startedAt = this.#probes.get(session);
    return startedAt !== undefined && isRecent(PROBE_MS, startedAt, now);
  }

  /** Records that a request goes to the node. True if it is the node's probe. */
  started(session: string, now: number): boolean {
    const breaker = this.#live.tripped.get(session);
    if (breaker === undefined || isOpen(breaker, now)) return false;
    for (const probed of this.#probes.keys()) if (!this.#live.tripped.has(probed)) this.#probes.delete(probed);
    this.#probes.set(session, now);
    return true;
  }

  /** Records the end of a request at the node. Returns the breaker state to publish, if it changed. */
  ended(session: string, ending: RequestOutcome, isProbe: boolean, now: number): BreakerState | undefined {
    if (isProbe) this.#probes.delete(session);
    if (ending !== 'complete' && ending !== 'failed') return undefined; // This ending says nothing about the node's health.
    this.#requests.add(now);
    if (ending === 'failed') this.#failures.add(now);
    const breaker = this.#live.tripped.get(session);
    if (breaker?.hangs === true) {
      // Closes the breaker in this process only. For all other processes the node's tunnel object decides. Its report
      // may have been lost if the registry's object was being moved.
      if (isProbe && ending === 'complete') this.#set(session, 'closed', 0, now);
      return undefined;
    }
    if (breaker !== undefined) return isProbe ? this.#onProbe(session, ending, breaker, now) : undefined;
    if (ending === 'complete') {
      if (this.#suspects.size > 0) this.#recordSuccess(session, now);
      return undefined;
    }
    return this.#hasFailed(session, now) ? this.#set(session, 'open', OPEN_MS, now) : undefined;
  }

  /**
   * Call if the node reports that its engine hangs or is being probed. The node is avoided for REPORT_DELAY_MAX_MS,
   * within which the registry's state of the node arrives.
   */
  hangs(session: string, now: number): void {
    // `since` is in the past, so that the registry's state counts as newer and replaces this one.
    this.#live.setBreaker(session, {
      state: 'open',
      since: now - REPORT_DELAY_MAX_MS,
      until: now + REPORT_DELAY_MAX_MS,
      hangs: true,
    });
  }

  #onProbe(session: string, ending: 'complete' | 'failed', { since, until }: BreakerState, now: number): BreakerState {
    if (ending === 'complete') return this.#set(session, 'closed', 0, now);
    return this.#set(session, 'open', Math.min(OPEN_MAX_MS, 2 * (until - since)), now);
  }

  #set(session: string, state: BreakerState['state'], ms: number, now: number): BreakerState {
    const breaker = { state, since: now, until: now + ms };
    this.#live.setBreaker(session, breaker);
    this.#suspects.delete(session);
    return breaker;
  }

  #recordSuccess(session: string, now: number): void {
    const suspect = this.#suspects.get(session);
    if (suspect === undefined) return;
    suspect.inARow = 0;
    suspect.requests.add(now);
    if (suspect.failures.count(now) === 0) this.#suspects.delete(session);
  }

  /** True if this failure opens the breaker. */
  #hasFailed(session: string, now: number): boolean {
    const known = this.#suspects.get(session);
    const suspect = known ?? { requests: new EventRate(), failures: new EventRate(), inARow: 0 };
    if (known === undefined) this.#remember(session, suspect);
    suspect.inARow++;
    suspect.requests.add(now);
    suspect.failures.add(now);
    const requests = suspect.requests.count(now);
    const ratio = suspect.failures.count(now) / requests;
    const often = suspect.inARow >= CONSECUTIVE || (requests >= REQUESTS_MIN && ratio >= RATIO);
    return often && ratio >= OUTLIER_FACTOR * this.#ratioOfOthers(suspect, now);
  }

  #ratioOfOthers({ requests, failures }: Suspect, now: number): number {
    const others = this.#requests.count(now) - requests.count(now);
    if (others < OTHERS_MIN) return 0;
    return Math.max(0, this.#failures.count(now) - failures.count(now)) / others;
  }

  #remember(session: string, suspect: Suspect): void {
    this.#suspects.set(session, suspect);
    const oldest = this.#suspects.keys().next().value;
    if (this.#suspects.size > SUSPECTS_MAX && oldest !== undefined) this.#suspects.delete(oldest);
  }
}
