/** The cost of a plan in a slot that is over: the measure by which policies are compared. Pure. */
import { availableWeights } from '../../../shared/routing/region-shares.ts';
import type { MergedModel } from './merge-origins.ts';
import { type LivePlan, type RegionModelPlan, requestUsd, tripsTo } from './region-planner.ts';
import { normalised, sum } from './share-solver.ts';
import type { ObservedPlace } from './traffic-tracker.ts';

interface CostOptions {
  slotS: number;
  secondsPerUsd: number;
  smoothness: number;
}

/** Up to this use of a region, requests wait as in a queue that is stable; above it, the queue grows all slot. */
const USE_STABLE = 0.95;

/**
 * Seconds per request that `plan` would have cost: network, computation, waiting and electricity, and the change from
 * the policy's plan `before` as the planner weighs it. The arrivals, service times, waiting requests and prices are
 * those that the slot showed. NaN if no planned model had a request.
 */
export function hindsightCost(
  plan: LivePlan,
  before: LivePlan | undefined,
  slot: { models: readonly MergedModel[]; usdKwh: (region: string) => number },
  options: CostOptions,
): number {
  let [seconds, requests] = [0, 0];
  for (const model of slot.models) {
    const planned = plan.models.find((one) => one.model === model.model);
    if (planned === undefined || model.arrived <= 0) continue;
    const last = before?.models.find((one) => one.model === model.model);
    const cost = modelCost(planned, last, model, slot.usdKwh, options);
    if (!Number.isFinite(cost)) continue;
    seconds += model.arrived * cost;
    requests += model.arrived;
  }
  return seconds / requests;
}

/** The row of the gateways of `origin`, as a gateway reads it. */
const rowOf = (plan: RegionModelPlan, origin: string) =>
  plan.origins.find((one) => one.origin === origin) ?? {
    shares: Object.fromEntries(plan.regions.map(({ region, share }) => [region, share])),
    spill: plan.spill,
  };

function modelCost(
  plan: RegionModelPlan,
  before: RegionModelPlan | undefined,
  { places, origins, arrived }: MergedModel,
  usdKwh: (region: string) => number,
  { slotS, secondsPerUsd, smoothness }: CostOptions,
): number {
  const there = places.filter((one) => one.replicas > 0 && Number.isFinite(one.serviceS) && one.serviceS > 0);
  if (there.length === 0) return Number.NaN;
  const regions = there.map(({ region }) => region);
  const price = there.map((place) => secondsPerUsd * requestUsd(place, usdKwh(place.region)));
  const load = there.map(() => 0);
  let cost = 0;
  const weights = normalised(origins.map((one) => one.arrived));
  for (const [row, { origin, roundTripS }] of origins.entries()) {
    const weight = weights[row] ?? 0;
    // Nodes may have left since the plan was made: the gateway then spills as here.
    const shares = normalised([...availableWeights(rowOf(plan, origin), regions)]);
    const trips = tripsTo(there, roundTripS, new Set());
    for (const [at, share] of shares.entries()) {
      const { serviceS = 0 } = there[at] ?? {};
      cost += weight * share * ((trips[at] ?? 0) + serviceS + (price[at] ?? 0));
      load[at] = (load[at] ?? 0) + weight * arrived * share;
    }
    if (before !== undefined) cost += weight * smoothness * changeOf(rowOf(plan, origin), rowOf(before, origin));
  }
  for (const [at, place] of there.entries()) cost += ((load[at] ?? 0) / arrived) * waitS(place, load[at] ?? 0, slotS);
  return cost;
}

/** ‖A − B‖² of two rows of shares. */
function changeOf(now: { shares: Record<string, number> }, before: { shares: Record<string, number> }): number {
  const regions = new Set([...Object.keys(now.shares), ...Object.keys(before.shares)]);
  return sum([...regions].map((region) => ((now.shares[region] ?? 0) - (before.shares[region] ?? 0)) ** 2));
}

/**
 * Mean wait of `requests` that come in a slot: Sakasegawa's approximation of a queue with several servers, and what a
 * load above the capacity adds while its queue grows.
 */
function waitS({ replicas, concurrency, others, waiting, serviceS }: ObservedPlace, requests: number, slotS: number) {
  const servers = Math.max(1, replicas * concurrency - others);
  const work = (requests + waiting) * serviceS;
  const use = Math.min(USE_STABLE, work / (servers * slotS));
  const stable = (serviceS * use ** (Math.sqrt(2 * (servers + 1)) - 1)) / (servers * (1 - use));
  return stable + Math.max(0, work - USE_STABLE * servers * slotS) / servers / 2;
}
