/**
 * Plans each model's shares of requests by region, their targets if a region is lost, and how many contexts to keep
 * warm. Pure, except that it remembers earlier slots.
 */
import type { RegionFacts } from '../../live/region-facts.ts';
import type { LearnedPolicy } from '../learned/learned-policy.ts';
import { CountForecast, type OnlineForecast } from './count-forecast.ts';
import { LearnedShares } from './learned-shares.ts';
import { type MergedModel, mergeOrigins, type OriginView } from './merge-origins.ts';
import { plannablePrices } from './region-prices.ts';
import { normalised, type OriginDemand, roomOf, solveShares, spillOf, sum, USE_MAX } from './share-solver.ts';
import type { ObservedPlace } from './traffic-tracker.ts';
import { WarmCounts } from './warm-counts.ts';

export interface LivePlannerOptions {
  slotS: number;
  /** A saved US dollar is worth this many seconds of response time. */
  secondsPerUsd: number;
  /** Penalty of a change of shares, in seconds: `smoothness` times the squared change. */
  smoothness: number;
  /** Returns the forecaster of one model; absent: exponential smoothing. */
  forecast?: (() => OnlineForecast) | undefined;
  /** Changes the shares of the quadratic program; absent: they are the plan. */
  learned?: LearnedPolicy | undefined;
}

interface PlannedRegion {
  region: string;
  /** Planned share of the model's requests. */
  share: number;
  /** Share of the responses in the last slot. */
  shareNow: number;
  /** From the first gateway. */
  roundTripS: number;
  usdKwh: number;
  replicas: number;
  warm: number;
}

/** The row of the gateways and ingresses of one region. */
export interface PlannedOrigin {
  /** Empty: gateways without a region. */
  origin: string;
  expected: number;
  shares: Record<string, number>;
  spill: Record<string, Record<string, number>>;
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
  /** Means over the origins, weighted by their requests: the row of gateways that have no own row. */
  regions: PlannedRegion[];
  spill: Record<string, Record<string, number>>;
  origins: PlannedOrigin[];
  /** Outcome with the current routing. */
  now: RegionPlanOutcome;
  /** Outcome with the planned routing. */
  planned: RegionPlanOutcome;
  /** Demand above the capacity of the most overloaded region, as a share of its capacity; see `solveShares`. */
  overload: number;
}

export interface LivePlan {
  models: RegionModelPlan[];
  notes: string[];
  /** Name of the policy that made it; absent: there is only one. */
  policy?: string;
  /** A line about each challenger, for people. */
  standings?: string[];
}

const JOULES_PER_KWH = 3.6e6;
/**
 * A region without measured round trips is assumed to be as far as the farthest known region, or this far if none is
 * known.
 */
const ROUND_TRIP_GUESS_S = 0.15;
/** Maximum number of models of a plan; those with the most requests take precedence. */
const MODELS_MAX = 500;

type UsdKwh = (region: string) => number;

export class LivePlanner {
  readonly #options: LivePlannerOptions;
  /** Shares of the last plan by model, origin and region. */
  readonly #shares = new Map<string, Map<string, ReadonlyMap<string, number>>>();
  readonly #forecasts = new Map<string, Map<string, CountForecast>>();
  readonly #warm = new WarmCounts();
  readonly #learned: LearnedShares | undefined;

  constructor(options: LivePlannerOptions) {
    this.#options = options;
    const { learned, slotS } = options;
    this.#learned = learned === undefined ? undefined : new LearnedShares(learned, slotS);
  }

  /**
   * Plans one row of shares for each region with a gateway. `views`: one for each gateway, that of --gateway first.
   * `facts`: of the gateway of --gateway. Leaves out models without a node, and models without a measured response.
   */
  plan(views: readonly OriginView[], facts: readonly RegionFacts[]): LivePlan {
    const { usdKwh, notes } = plannablePrices(facts);
    const guessed = new Set<string>();
    const models: RegionModelPlan[] = [];
    const seen = mergeOrigins(views)
      .sort((a, b) => b.arrived - a.arrived)
      .slice(0, MODELS_MAX);
    for (const model of seen) {
      const planned = this.#planModel(model, (region) => usdKwh.get(region) ?? 0, guessed);
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

  #planModel(merged: MergedModel, usdKwh: UsdKwh, guessed: Set<string>): RegionModelPlan | undefined {
    const { model, origins } = merged;
    const there = merged.places.filter((one) => one.replicas > 0 && Number.isFinite(one.serviceS) && one.serviceS > 0);
    const expected = origins.map(({ origin, arrived }) => {
      const forecast = this.#forecast(model, origin);
      forecast.observe(arrived);
      return forecast.next();
    });
    if (there.length === 0) return undefined;
    const tripsS = origins.map(({ roundTripS }) => tripsTo(there, roundTripS, guessed));
    const demands = origins.map(({ origin }, row): OriginDemand => {
      const before = this.#shares.get(model)?.get(origin);
      const kept = there.map(({ region }) => before?.get(region) ?? 0);
      return {
        requests: expected[row] ?? 0,
        cost: there.map((place, at) => (tripsS[row]?.[at] ?? 0) + place.serviceS + this.#worth(place, usdKwh)),
        previous: sum(kept) > 0.5 ? normalised(kept) : normalised(there.map(roomOf)),
      };
    });
    const solved = solveShares(there, demands, this.#options);
    const { overload } = solved;
    const shares =
      this.#learned?.of({ merged, there, shares: solved.shares, expected, tripsS, usdKwh }) ?? solved.shares;
    const rowOf = (row: number, of = shares) =>
      Object.fromEntries(there.map(({ region }, at) => [region, of[row]?.[at] ?? 0]));
    // The quadratic program continues from its own shares: from learned ones, the policy's factors would multiply.
    const solvedRow = (row: number) => new Map(Object.entries(rowOf(row, solved.shares)));
    this.#shares.set(model, new Map(origins.map(({ origin }, row) => [origin, solvedRow(row)])));
    const spills = spillOf(there, demands, shares, this.#options);
    return {
      ...this.#summary(merged, there, { expected, shares, tripsS, usdKwh }),
      model,
      spill: meanSpill(spills, expected),
      origins: origins.map(({ origin }, row) => ({
        origin,
        expected: expected[row] ?? 0,
        shares: rowOf(row),
        spill: spills[row] ?? {},
      })),
      overload,
    };
  }

  /** The model's plan over all origins together. */
  #summary(
    { model, origins }: MergedModel,
    there: readonly ObservedPlace[],
    {
      expected,
      shares,
      tripsS,
      usdKwh,
    }: { expected: readonly number[]; shares: readonly number[][]; tripsS: readonly number[][]; usdKwh: UsdKwh },
  ): Pick<RegionModelPlan, 'expected' | 'regions' | 'now' | 'planned'> {
    const { slotS } = this.#options;
    const all = sum(expected);
    const weights = normalised(expected);
    const mean = there.map((_, at) => sum(shares.map((own, row) => (weights[row] ?? 0) * (own[at] ?? 0))));
    const warm = this.#warm.of(model, there, mean, all, slotS * USE_MAX);
    const flows = normalised(there.map((place) => place.answered));
    const answered = origins.map((origin) => normalised(there.map(({ region }) => origin.answered.get(region) ?? 0)));
    const perHour = (3_600 / slotS) * all;
    const outcomeOf = (rows: readonly (readonly number[])[], nodes: readonly number[]) =>
      outcome(there, rows, weights, tripsS, nodes, perHour, usdKwh);
    return {
      expected: all,
      regions: there.map(({ region, replicas }, at) => ({
        region,
        share: mean[at] ?? 0,
        shareNow: flows[at] ?? 0,
        roundTripS: tripsS[0]?.[at] ?? 0,
        usdKwh: usdKwh(region),
        replicas,
        warm: warm[at] ?? 0,
      })),
      now: outcomeOf(
        answered,
        there.map(({ replicas }) => replicas),
      ),
      planned: outcomeOf(shares, warm),
    };
  }

  #worth(place: ObservedPlace, usdKwh: UsdKwh): number {
    return this.#options.secondsPerUsd * requestUsd(place, usdKwh(place.region));
  }

  #forecast(model: string, origin: string): CountForecast {
    const ofModel = this.#forecasts.get(model) ?? new Map<string, CountForecast>();
    this.#forecasts.set(model, ofModel);
    const known = ofModel.get(origin) ?? new CountForecast(this.#options.forecast?.());
    ofModel.set(origin, known);
    return known;
  }

  #forget(models: ReadonlySet<string>): void {
    for (const model of this.#forecasts.keys()) {
      if (models.has(model)) continue;
      this.#forecasts.delete(model);
      this.#shares.delete(model);
      this.#warm.forget(model);
      this.#learned?.forget(model);
    }
  }
}

/** Round trips from one origin to the places; adds regions without a known round trip to `guessed`. */
export function tripsTo(
  places: readonly ObservedPlace[],
  known: ReadonlyMap<string, number>,
  guessed: Set<string>,
): number[] {
  const farthest = Math.max(0, ...known.values());
  return places.map(({ region }) => {
    const seconds = known.get(region);
    if (seconds === undefined) guessed.add(region);
    return seconds ?? (farthest > 0 ? farthest : ROUND_TRIP_GUESS_S);
  });
}

/** The mean of the origins' spills, weighted by their requests, among the origins that use the region. */
function meanSpill(
  spills: readonly Record<string, Record<string, number>>[],
  expected: readonly number[],
): Record<string, Record<string, number>> {
  const [first] = spills;
  if (spills.length === 1 && first !== undefined) return first;
  const mean: Record<string, Record<string, number>> = {};
  for (const lost of new Set(spills.flatMap((spill) => Object.keys(spill)))) {
    const rows = spills.flatMap((spill, row) => {
      const parts = spill[lost];
      return parts === undefined ? [] : [{ parts, requests: expected[row] ?? 0 }];
    });
    const weights = normalised(rows.map(({ requests }) => requests));
    const targets: Record<string, number> = {};
    for (const [row, { parts }] of rows.entries())
      for (const [region, part] of Object.entries(parts))
        targets[region] = (targets[region] ?? 0) + (weights[row] ?? 0) * part;
    mean[lost] = targets;
  }
  return mean;
}

/** Electricity cost of one response, USD. The requests that a node serves concurrently share its busy power. */
export function requestUsd({ power, serviceS, concurrency }: ObservedPlace, usdKwh: number): number {
  return ((power.busyW * serviceS) / concurrency / JOULES_PER_KWH) * usdKwh;
}

/** `shares[origin][place]`; `weights`: share of all requests by origin; `nodes`: awake nodes by place. */
function outcome(
  places: readonly ObservedPlace[],
  shares: readonly (readonly number[])[],
  weights: readonly number[],
  tripsS: readonly (readonly number[])[],
  nodes: readonly number[],
  perHour: number,
  usdKwh: UsdKwh,
): RegionPlanOutcome {
  let [responseS, usdPerHour] = [0, 0];
  for (const [at, place] of places.entries()) {
    const price = usdKwh(place.region);
    for (const [row, weight] of weights.entries()) {
      const share = weight * (shares[row]?.[at] ?? 0);
      responseS += share * ((tripsS[row]?.[at] ?? 0) + place.serviceS);
      usdPerHour += perHour * share * requestUsd(place, price);
    }
    usdPerHour += ((place.power.idleW * (nodes[at] ?? 0)) / 1_000) * price;
  }
  return { responseS, usdPerHour };
}
