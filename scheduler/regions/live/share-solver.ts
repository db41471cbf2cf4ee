/** Solves the shares of one model for all origins together, because they share the capacity of the regions. */
import { smoothTransport } from '../smooth-transport.ts';
import type { ObservedPlace } from './traffic-tracker.ts';

/** A plan uses at most this share of a node's time, because requests queue above it. */
export const USE_MAX = 0.9;
/**
 * A smaller share becomes zero, because a few requests would keep a region's caches and contexts warm for little gain.
 */
const SHARE_MIN = 1e-3;
/**
 * `smoothness` of the plan for a lost region, seconds. That plan takes effect immediately and without measurements, so
 * it stays close to the regions' free capacity.
 */
const SPILL_SMOOTHNESS = 0.5;
/**
 * At least this demand is planned, requests per slot, so that the shares of a model without demand still move to the
 * place that would answer the next request best.
 */
const REQUESTS_MIN = 1e-3;

/** Demand of the gateways and ingresses of one region. */
export interface OriginDemand {
  /** Expected requests of the slot. */
  requests: number;
  /** Seconds of one request, in the order of the places. */
  cost: readonly number[];
  /** Shares of the previous slot, in the order of the places. */
  previous: readonly number[];
}

interface SolveOptions {
  slotS: number;
  smoothness: number;
}

interface SolvedShares {
  /** `shares[origin][place]`; each row sums to 1. */
  shares: number[][];
  /** Demand above the capacity of the most overloaded place, as a share of its capacity. */
  overload: number;
}

/** min ⟨cost, x⟩ + smoothness · ‖x − previous‖² per request, over shares of each origin; capacity is a soft limit. */
export function solveShares(
  places: readonly ObservedPlace[],
  origins: readonly OriginDemand[],
  { slotS, smoothness }: SolveOptions,
): SolvedShares {
  const [rows, columns] = [origins.length, places.length];
  const matrix = (of: (origin: OriginDemand, at: number) => number) =>
    Float64Array.from({ length: rows * columns }, (_, at) => {
      const origin = origins[Math.floor(at / columns)];
      return origin === undefined ? 0 : of(origin, at % columns);
    });
  const problem = {
    rows,
    columns,
    mass: Float64Array.from(origins, ({ requests }) => Math.max(requests, REQUESTS_MIN)),
    cost: matrix(({ cost }, at) => cost[at] ?? Number.POSITIVE_INFINITY),
    load: matrix((_, at) => places[at]?.serviceS ?? 0),
    capacity: Float64Array.from(places, (place) => capacityOf(place, slotS)),
  };
  const { shares, overload } = smoothTransport(
    problem,
    matrix(({ previous }, at) => previous[at] ?? 0),
    smoothness,
  );
  return {
    overload,
    shares: origins.map(({ previous }, row) => {
      const own = Array.from(shares.subarray(row * columns, (row + 1) * columns));
      const kept = own.map((share) => (share < SHARE_MIN || !Number.isFinite(share) ? 0 : share));
      return sum(kept) > 0 ? normalised(kept) : [...previous];
    }),
  };
}

/**
 * `spill[origin]`: for each region that has a share of the origin, the regions that get this share if the region is
 * lost, by a plan without it.
 */
export function spillOf(
  places: readonly ObservedPlace[],
  origins: readonly OriginDemand[],
  shares: readonly (readonly number[])[],
  options: SolveOptions,
): Record<string, Record<string, number>>[] {
  const spills = origins.map((): Record<string, Record<string, number>> => ({}));
  if (places.length < 2) return spills;
  for (const [lost, { region }] of places.entries()) {
    if (shares.every((own) => (own[lost] ?? 0) === 0)) continue;
    const others = places.map((_, at) => at).filter((at) => at !== lost);
    const of = (values: readonly number[]) => others.map((at) => values[at] ?? 0);
    const left = others.flatMap((at) => places[at] ?? []);
    const rooms = normalised(left.map(roomOf));
    const demands = origins.map(({ requests, cost }, row): OriginDemand => {
      // The shares start from the mean of the planned shares and the shares of capacity. With planned shares only, the
      // nearest region could get all requests of the lost region, and would be overloaded. If the plan gave everything
      // to the lost region, only capacity counts.
      const planned = of(shares[row] ?? []);
      const proportional = sum(planned) > 0 ? normalised(planned) : rooms;
      return {
        requests,
        cost: of(cost),
        previous: proportional.map((share, at) => (share + (rooms[at] ?? 0)) / 2),
      };
    });
    const without = solveShares(left, demands, { ...options, smoothness: SPILL_SMOOTHNESS }).shares;
    for (const [row, spill] of spills.entries()) {
      if ((shares[row]?.[lost] ?? 0) === 0) continue;
      const target = without[row] ?? [];
      const more = others.map((at, n) => Math.max(0, (target[n] ?? 0) - (shares[row]?.[at] ?? 0)));
      const parts = sum(more) > 0 ? normalised(more) : target;
      spill[region] = Object.fromEntries(left.map((place, n) => [place.region, parts[n] ?? 0]));
    }
  }
  return spills;
}

/** Responses per second that a place can serve. */
export function roomOf({ replicas, concurrency, serviceS }: ObservedPlace): number {
  return (replicas * concurrency) / serviceS;
}

/**
 * Seconds of service that a place can give to the requests of the planned gateways in a slot: all seconds minus those
 * for requests of other sources and for waiting requests.
 */
function capacityOf({ replicas, concurrency, others, waiting, serviceS }: ObservedPlace, slotS: number): number {
  return Math.max(0, (replicas * concurrency * USE_MAX - others) * slotS - waiting * serviceS);
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Divides each value by their sum; if the sum is 0, all get equal shares. */
export function normalised(values: readonly number[]): number[] {
  const total = sum(values);
  return values.map((value) => (total > 0 ? value / total : 1 / values.length));
}
