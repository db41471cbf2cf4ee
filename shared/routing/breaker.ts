import { within } from '../collections/within.ts';
import type { Ending } from './attempts.ts';
import type { LiveNodes } from './live.ts';
import type { BreakerState } from './load.ts';
import { Rate } from './rate.ts';

/** Failures in a row after which a node is left alone. */
const CONSECUTIVE = 5;

/** Or this share of its last 10 s, of so many requests at least. */
const RATIO = 0.5;
const REQUESTS_MIN = 10;

/**
 * An outlier is worse than the others by this factor. Where all fail alike (a request that no engine likes, a store they share) no
 * node is to blame, and leaving some alone would only burden the rest.
 */
const WORSE_BY = 2;
/** Fewer requests of the others than this say nothing about them. */
const OTHERS_MIN = 5;

/** Left alone for so long at first; twice as long each time a probe fails, up to the second. */
const OPEN_MS = 5_000;
const OPEN_MAX_MS = 60_000;

/** A probe that takes longer than this keeps no other from being tried. */
const PROBE_MS = 30_000;

/** What one isolate tells the registry all others know within this. */
const TOLD_MS = 1_000;

/** Nodes that failed lately. */
const SUSPECTS_MAX = 1_000;

/** No breaker is open for longer than `OPEN_MAX_MS`: one that would be is from before the clock was set back. */
function isOpen({ until }: BreakerState, now: number): boolean {
  return now < until && until - now <= OPEN_MAX_MS;
}

interface Suspect {
  requests: Rate;
  failures: Rate;
  inARow: number;
}

/**
 * One circuit breaker per node, as one isolate or one agent's ingress keeps them: closed → open → half-open → closed or open again
 * (Nygard, Release It!, ch. 5). What became of a breaker is written to `live`, where what other isolates found out comes to as well.
 *
 * Nodes that never fail cost nothing but two additions per request.
 */
export class Breakers {
  readonly #live: LiveNodes;
  readonly #suspects = new Map<string, Suspect>();
  /** Half-open nodes to the time of the request that tries them; bounded by `live.tripped`. */
  readonly #probes = new Map<string, number>();
  readonly #requests = new Rate();
  readonly #failures = new Rate();

  constructor(live: LiveNodes) {
    this.#live = live;
  }

  /** Nodes to pass over while there are others; undefined: none. `mayProbe`: the request can be sent again if a probe fails. */
  avoided(now: number, mayProbe: boolean): ((node: { readonly session: string }) => boolean) | undefined {
    const { tripped } = this.#live;
    if (tripped.size === 0) return undefined;
    return ({ session }) => {
      const breaker = tripped.get(session);
      return breaker !== undefined && (isOpen(breaker, now) || !mayProbe || this.#isProbed(session, now));
    };
  }

  #isProbed(session: string, now: number): boolean {
    const startedAt = this.#probes.get(session);
    return startedAt !== undefined && within(PROBE_MS, startedAt, now);
  }

  /** A request goes to the node. True where it is its probe. */
  started(session: string, now: number): boolean {
    const breaker = this.#live.tripped.get(session);
    if (breaker === undefined || isOpen(breaker, now)) return false;
    for (const probed of this.#probes.keys()) if (!this.#live.tripped.has(probed)) this.#probes.delete(probed);
    this.#probes.set(session, now);
    return true;
  }

  /** And came to its end there. Returns what others are to be told. */
  ended(session: string, ending: Ending, isProbe: boolean, now: number): BreakerState | undefined {
    if (isProbe) this.#probes.delete(session);
    if (ending !== 'complete' && ending !== 'failed') return undefined; // says nothing about its health
    this.#requests.add(now);
    if (ending === 'failed') this.#failures.add(now);
    const breaker = this.#live.tripped.get(session);
    if (breaker?.hangs === true) {
      // Only here: a registry that was just moving may not have heard that it answers again.
      if (isProbe && ending === 'complete') this.#set(session, 'closed', 0, now);
      return undefined;
    }
    if (breaker !== undefined) return isProbe ? this.#onProbe(session, ending, breaker, now) : undefined;
    if (ending === 'complete') {
      if (this.#suspects.size > 0) this.#wasWell(session, now);
      return undefined;
    }
    return this.#hasFailed(session, now) ? this.#set(session, 'open', OPEN_MS, now) : undefined;
  }

  /** The node itself said that its engine hangs, or that it is being tried: it is left alone until the registry tells how long. */
  hangs(session: string, now: number): void {
    // Older than the registry's own word of just now, which therefore takes its place.
    this.#live.setBreaker(session, { state: 'open', since: now - TOLD_MS, until: now + TOLD_MS, hangs: true });
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

  #wasWell(session: string, now: number): void {
    const suspect = this.#suspects.get(session);
    if (suspect === undefined) return;
    suspect.inARow = 0;
    suspect.requests.add(now);
    if (suspect.failures.count(now) === 0) this.#suspects.delete(session);
  }

  /** True where that was once too often. */
  #hasFailed(session: string, now: number): boolean {
    const known = this.#suspects.get(session);
    const suspect = known ?? { requests: new Rate(), failures: new Rate(), inARow: 0 };
    if (known === undefined) this.#remember(session, suspect);
    suspect.inARow++;
    suspect.requests.add(now);
    suspect.failures.add(now);
    const requests = suspect.requests.count(now);
    const ratio = suspect.failures.count(now) / requests;
    const often = suspect.inARow >= CONSECUTIVE || (requests >= REQUESTS_MIN && ratio >= RATIO);
    return often && ratio >= WORSE_BY * this.#ratioOfOthers(suspect, now);
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
