/**
 * Parts of limits that another process may grant without asking. A lease counts as used from the moment when it is
 * granted, so all processes together never exceed a limit. Its unused rest comes back when it ends. Pure.
 */
import type { Leasable, LimitMeter, MeterTime } from './limit-meter.ts';
import type { TokenEstimator, TokenForecast } from './token-estimator.ts';

/** A process grants from a lease for this time after it asked for it. */
export const LEASE_LIFE_MS = 5_000;
/** The owner of the limits takes the rest back later: reports of granted requests may be on their way. */
const LEASE_KEPT_MS = 2 * LEASE_LIFE_MS;
/** Maximum requests of a lease, and the least that is worth one. */
const REQUESTS_MAX = 1_000;
const REQUESTS_MIN = 2;
/** Maximum leases of one owner. Above it, no leases are granted. */
const LEASES_MAX = 4_096;
/** Maximum processes with a remembered last position. */
const SOURCES_MAX = 1_024;

type EstimatorState = ReturnType<TokenEstimator['state']>;

/** What a process gets: it may grant this many requests, and this many tokens by its own estimates. */
export interface LimitLease {
  id: number;
  /** Ids of the meters that count its requests. */
  meters: readonly string[];
  requests: number;
  /** Undefined: no limit counts tokens. */
  tokens: number | undefined;
  /** Rate-limit headers without the lease. */
  headers: Record<string, string>;
  /** What the owner knows of the project's and the key's earlier requests. */
  estimators: { project: EstimatorState; key: EstimatorState };
}

/** A request that a process granted from a lease. */
export interface LeasedRequest extends TokenForecast {
  /** Counts up in each process, so that a repeated report is recognized. */
  position: number;
  lease: number;
  name: string;
  keyId: string;
  meters: readonly string[];
  /** Estimated tokens. */
  tokens: number;
}

export interface LeaseReport {
  /** Names the process. */
  source: string;
  granted: readonly LeasedRequest[];
  /** Leases from which the process grants nothing more. */
  ended: readonly number[];
}

interface GrantedLease {
  meters: readonly LimitMeter[];
  requests: number;
  tokens: number | undefined;
  at: number;
  until: number;
}

export class LimitLeases {
  /** In the order of their ends. At most LEASES_MAX. */
  readonly #leases = new Map<number, GrantedLease>();
  /** The last position of each process. At most SOURCES_MAX; the oldest is dropped. */
  readonly #positions = new Map<string, number>();
  #lastId: number;

  /** @param firstId differs between owners, so that a lease of a former owner is not taken for one of this owner */
  constructor(firstId: number) {
    this.#lastId = firstId;
  }

  /** @param estimate tokens of a usual request. @returns undefined if the limits have too little left for a lease */
  grant(
    meters: readonly { meter: LimitMeter; leasable: Leasable | undefined }[],
    estimate: number,
    now: MeterTime,
  ): Pick<LimitLease, 'id' | 'requests' | 'tokens'> | undefined {
    this.expire(now);
    if (this.#leases.size >= LEASES_MAX) return undefined;
    let requests = REQUESTS_MAX;
    let tokensLeft = Number.POSITIVE_INFINITY;
    for (const { leasable } of meters) {
      if (leasable === undefined) return undefined;
      requests = Math.min(requests, leasable.requests);
      tokensLeft = Math.min(tokensLeft, leasable.tokens);
    }
    const tokens = Number.isFinite(tokensLeft) ? Math.floor(tokensLeft) : undefined;
    requests = Math.floor(requests);
    if (requests < REQUESTS_MIN || (tokens !== undefined && tokens < REQUESTS_MIN * estimate)) return undefined;
    for (const { meter } of meters) meter.lease(requests, tokens ?? 0, now);
    const id = ++this.#lastId;
    const lease = { meters: meters.map(({ meter }) => meter), requests, tokens, at: now.ms };
    this.#leases.set(id, { ...lease, until: now.ms + LEASE_KEPT_MS });
    return { id, requests, tokens };
  }

  /** False: this report of the process was counted before. */
  isNew(source: string, position: number): boolean {
    const last = this.#positions.get(source) ?? Number.NEGATIVE_INFINITY;
    if (position <= last) return false;
    this.#positions.delete(source);
    this.#positions.set(source, position);
    const [oldest] = this.#positions.keys();
    if (this.#positions.size > SOURCES_MAX && oldest !== undefined) this.#positions.delete(oldest);
    return true;
  }

  /**
   * Takes a request that was granted from a lease out of the lease's counts: it has its own from now on. An unknown
   * lease has ended, or a former owner granted it.
   */
  use(id: number, tokens: number, now: MeterTime): void {
    this.expire(now);
    const lease = this.#leases.get(id);
    if (lease === undefined || lease.requests === 0) return;
    const leasedTokens = Math.min(tokens, lease.tokens ?? 0);
    lease.requests--;
    if (lease.tokens !== undefined) lease.tokens -= leasedTokens;
    for (const meter of lease.meters) meter.unlease(1, leasedTokens, lease.at, now);
  }

  end(id: number, now: MeterTime): void {
    const lease = this.#leases.get(id);
    if (lease === undefined) return;
    this.#leases.delete(id);
    for (const meter of lease.meters) meter.unlease(lease.requests, lease.tokens ?? 0, lease.at, now);
  }

  expire(now: MeterTime): void {
    for (const [id, { until }] of this.#leases) {
      if (until > now.ms) return;
      this.end(id, now);
    }
  }
}
