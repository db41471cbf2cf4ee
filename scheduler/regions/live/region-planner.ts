/**
 * Plans each model's shares of requests by region, their targets if a region is lost, and how many contexts to keep
 * warm. Pure, except that it remembers earlier slots.
 */
import type { RegionFacts } from '../../live/region-facts.ts';
import { CountForecast, type OnlineForecast } from './count-forecast.ts';
import { divideRequests } from './divide-requests.ts';
import { plannablePrices } from './region-prices.ts';
import type { Observed, ObservedModel, ObservedPlace } from './traffic-tracker.ts';
import { WarmCounts } from './warm-counts.ts';

export interface LivePlannerOptions {
  slotS: number;
  /** A saved US dollar is worth this many seconds of response time. */
  secondsPerUsd: number;
  /** Penalty of a change of shares, in seconds: `smoothness` times the squared change. */
  smoothness: number;
  /** Returns the forecaster of one model; absent: exponential smoothing. */
  forecast?: () => OnlineForecast;
}

interface PlannedRegion {
  region: string;
  /** Planned share of the model's requests. */
  share: number;
  /** Share of the responses in the last slot. */
  shareNow: number;
  roundTripS: number;
  usdKwh: number;
  replicas: number;
  warm: number;
}

/** Means over the requests of a slot, as the simulator's cost model computes them. */
export interface RegionPlanOutcome {
  /** Seconds of network and computation, without queueing. */
  responseS: number;
  /** Electricity of responses and of idle nodes, USD per hour. */
  usdPerHour: number;
}

export interface RegionModelPlan {
  model: string;
  /** Expected requests in the next slot. */
  expected: number;
  regions: PlannedRegion[];
  spill: Record<string, Record<string, number>>;
  /** Outcome with the current routing. */
  now: RegionPlanOutcome;
  /** Outcome with the planned routing. */
  planned: RegionPlanOutcome;
  /** Demand above the capacity of the most overloaded region, as a share of its capacity; see `divideRequests`. */
  overload: number;
}

export interface LivePlan {
  models: RegionModelPlan[];
  notes: string[];
}

/** A plan uses at most this share of a node's time, because requests queue above it. */
const USE_MAX = 0.9;
/** Power of a busy and of an idle node, as shares of its power limit; as in the simulator (`world/hardware.ts`). */
const [BUSY_POWER, IDLE_POWER] = [0.85, 0.2];
const JOULES_PER_KWH = 3.6e6;
/**
 * A region without measured round trips is assumed to be as far as the farthest known region, or this far if none is
 * known.
 */
const ROUND_TRIP_GUESS_S = 0.15;
/**
 * A smaller share becomes zero, because a few requests would keep a region's caches and contexts warm for little gain.
 */
const SHARE_MIN = 1e-3;
/**
 * `smoothness` of the plan for a lost region, seconds. That plan takes effect immediately and without measurements, so
 * it stays close to the regions' free capacity.
 */
const SPILL_SMOOTHNESS = 0.5;
/** Maximum number of models of a plan; those with the most requests take precedence. */
const MODELS_MAX = 500;

export class LivePlanner {
  readonly #options: LivePlannerOptions;
  readonly #shares = new Map<string, ReadonlyMap<string, number>>();
  readonly #forecasts = new Map<string, CountForecast>();
  readonly #warm = new WarmCounts();

  constructor(options: LivePlannerOptions) {
    this.#options = options;
  }

  /** Leaves out models without a node, and models without a measured response. */
  plan(observed: Observed, facts: readonly RegionFacts[]): LivePlan {
    const { usdKwh, notes } = plannablePrices(facts);
    const farthest = Math.max(0, ...observed.roundTripS.values());
    const guessed = new Set<string>();
    const roundTripS = (region: string) => {
      const known = observed.roundTripS.get(region);
      if (known === undefined) guessed.add(region);
      return known ?? (farthest > 0 ? farthest : ROUND_TRIP_GUESS_S);
    };
    const models: RegionModelPlan[] = [];
    const seen = [...observed.models].sort((a, b) => b.arrived - a.arrived).slice(0, MODELS_MAX);
    for (const model of seen) {
      const planned = this.#planModel(model, (region) => usdKwh.get(region) ?? 0, roundTripS);
      if (planned !== undefined) models.push(planned);
    }
    this.#forget(new Set(seen.map(({ model }) => model)));
    for (const region of guessed)
      notes.push(
        `no round trip to ${region === '' ? 'nodes without a region' : region} was measured yet: assumed to be far`,
      );
    for (const { model, overload } of models)
      if (overload > 0.01)
        notes.push(`${model}: ${(100 * overload).toFixed(0)} % more load than all regions can serve`);
    return { models, notes };
  }

  #planModel(
    { model, arrived, places }: ObservedModel,
    usdKwh: (region: string) => number,
    roundTripS: (region: string) => number,
  ): RegionModelPlan | undefined {
    const { slotS } = this.#options;
    const there = places.filter(({ replicas, serviceS }) => replicas > 0 && Number.isFinite(serviceS) && serviceS > 0);
    const forecast = this.#forecast(model);
    forecast.observe(arrived);
    if (there.length === 0) return undefined;
    const expected = forecast.next();
    const cost = there.map((place) => roundTripS(place.region) + place.serviceS + this.#worth(place, usdKwh));
    const before = this.#shares.get(model);
    const kept = there.map(({ region }) => before?.get(region) ?? 0);
    const started = sum(kept) > 0.5 ? normalised(kept) : normalised(there.map(roomOf));
    const solved = solve(there, cost, expected, started, this.#options);
    const { shares } = solved;
    this.#shares.set(model, new Map(there.map(({ region }, at) => [region, shares[at] ?? 0])));
    const flows = normalised(there.map((place) => place.answered));
    const warm = this.#warm.of(model, there, shares, expected, slotS * USE_MAX);
    const perHour = (3_600 / slotS) * expected;
    return {
      model,
      expected,
      regions: there.map(({ region, replicas }, at) => ({
        region,
        share: shares[at] ?? 0,
        shareNow: flows[at] ?? 0,
        roundTripS: roundTripS(region),
        usdKwh: usdKwh(region),
        replicas,
        warm: warm[at] ?? 0,
      })),
      spill: spillOf(there, cost, expected, shares, this.#options),
      now: outcome(
        there,
        flows,
        there.map(({ replicas }) => replicas),
        perHour,
        usdKwh,
        roundTripS,
      ),
      planned: outcome(there, shares, warm, perHour, usdKwh, roundTripS),
      overload: solved.overload,
    };
  }

  #worth(place: ObservedPlace, usdKwh: (region: string) => number): number {
    return this.#options.secondsPerUsd * requestUsd(place, usdKwh(place.region));
  }

  #forecast(model: string): CountForecast {
    let known = this.#forecasts.get(model);
    if (known === undefined) {
      known = new CountForecast(this.#options.forecast?.());
      this.#forecasts.set(model, known);
    }
    return known;
  }

  #forget(models: ReadonlySet<string>): void {
    for (const model of this.#forecasts.keys()) {
      if (models.has(model)) continue;
      this.#forecasts.delete(model);
      this.#shares.delete(model);
      this.#warm.forget(model);
    }
  }
}

/** Electricity cost of one response, USD. The requests that a node serves concurrently share its busy power. */
function requestUsd({ watts, serviceS, concurrency }: ObservedPlace, usdKwh: number): number {
  return ((watts * BUSY_POWER * serviceS) / concurrency / JOULES_PER_KWH) * usdKwh;
}

function outcome(
  places: readonly ObservedPlace[],
  shares: readonly number[],
  warm: readonly number[],
  perHour: number,
  usdKwh: (region: string) => number,
  roundTripS: (region: string) => number,
): RegionPlanOutcome {
  let [responseS, usdPerHour] = [0, 0];
  for (const [at, place] of places.entries()) {
    const share = shares[at] ?? 0;
    const price = usdKwh(place.region);
    responseS += share * (roundTripS(place.region) + place.serviceS);
    usdPerHour += perHour * share * requestUsd(place, price);
    usdPerHour += ((place.watts * IDLE_POWER * (warm[at] ?? 0)) / 1_000) * price;
  }
  return { responseS, usdPerHour };
}

/** Responses per second that a place can serve. */
function roomOf({ replicas, concurrency, serviceS }: ObservedPlace): number {
  return (replicas * concurrency) / serviceS;
}

/**
 * Seconds of service that a place can give to this gateway's requests in a slot: all seconds minus those for requests
 * of other sources and for waiting requests.
 */
function capacityOf({ replicas, concurrency, others, waiting, serviceS }: ObservedPlace, slotS: number): number {
  return Math.max(0, (replicas * concurrency * USE_MAX - others) * slotS - waiting * serviceS);
}

type Solving = Pick<LivePlannerOptions, 'slotS' | 'smoothness'>;

function solve(
  places: readonly ObservedPlace[],
  cost: readonly number[],
  expected: number,
  previous: readonly number[],
  { slotS, smoothness }: Solving,
): { shares: number[]; overload: number } {
  const { shares, overload } = divideRequests({
    // At least a tiny demand is planned, so that the shares of a model without demand still move to the place that
    // would answer the next request best.
    requests: Math.max(expected, 1e-3),
    cost,
    load: places.map(({ serviceS }) => serviceS),
    capacity: places.map((place) => capacityOf(place, slotS)),
    previous,
    smoothness,
  });
  const kept = shares.map((share) => (share < SHARE_MIN || !Number.isFinite(share) ? 0 : share));
  return { shares: sum(kept) > 0 ? normalised(kept) : [...previous], overload };
}

/** For each region that has a share: the regions that get this share if the region is lost, by a plan without it. */
function spillOf(
  places: readonly ObservedPlace[],
  cost: readonly number[],
  expected: number,
  shares: readonly number[],
  options: Solving,
): Record<string, Record<string, number>> {
  const spill: Record<string, Record<string, number>> = {};
  if (places.length < 2) return spill;
  for (const [lost, { region }] of places.entries()) {
    if ((shares[lost] ?? 0) === 0) continue;
    const others = places.map((_, at) => at).filter((at) => at !== lost);
    const of = (values: readonly number[]) => others.map((at) => values[at] ?? 0);
    const left = others.flatMap((at) => places[at] ?? []);
    // The shares start from the mean of the planned shares and the shares of capacity. With planned shares only, the
    // nearest region could get all requests of the lost region, and would be overloaded. If the plan gave everything to
    // the lost region, only capacity counts.
    const rooms = normalised(left.map(roomOf));
    const proportional = sum(of(shares)) > 0 ? normalised(of(shares)) : rooms;
    const previous = proportional.map((share, at) => (share + (rooms[at] ?? 0)) / 2);
    const without = solve(left, of(cost), expected, previous, { ...options, smoothness: SPILL_SMOOTHNESS }).shares;
    const more = others.map((at, n) => Math.max(0, (without[n] ?? 0) - (shares[at] ?? 0)));
    const parts = sum(more) > 0 ? normalised(more) : without;
    spill[region] = Object.fromEntries(left.map((place, n) => [place.region, parts[n] ?? 0]));
  }
  return spill;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Divides each value by their sum; if the sum is 0, all get equal shares. */
function normalised(values: readonly number[]): number[] {
  const total = sum(values);
  return values.map((value) => (total > 0 ? value / total : 1 / values.length));
}
