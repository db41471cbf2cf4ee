import { segments } from './latency-curve.ts';
import type { UsableCapacity } from './latency-targets.ts';
import type { Counts, Demand, Option } from './planning-problem.ts';

/** How a set of replicas serves the demand, by the options' curves. */
export interface Evaluation {
  /** Requests/s that all replicas of each option get together. */
  rates: number[];
  /** Requests/s of each model that its replicas cannot serve. */
  unserved: number[];
  /** Mean seconds of each model's served requests; NaN if latency does not count. */
  latency: number[];
  /** Mean seconds of all served requests; NaN if latency does not count. */
  meanLatencyS: number;
  /** Sum over all models of served requests/s times their mean seconds. */
  waiting: number;
  /** Share of its demand that the worst served model's replicas could serve. Above 1 there is headroom. */
  share: number;
}

/** Rates below this share of a model's rate are rounding errors. */
export const SERVED_TOLERANCE = 1e-6;

/**
 * Computes the best split of each model's rate over its replicas. Curves are convex, so it is optimal to fill the
 * segments with the lowest slope first. The router's weights are computed from `rates`. If curves are empty, all
 * replicas of a model have the same load.
 */
export function evaluatePlan(
  options: readonly Option[],
  usable: readonly UsableCapacity[],
  counts: Counts,
  demands: readonly Demand[],
): Evaluation {
  const rates = options.map(() => 0);
  const byModel: number[][] = demands.map(() => []);
  options.forEach((option, o) => {
    if ((counts[o] ?? 0) > 0) byModel[option.demand]?.push(o);
  });
  const unserved: number[] = [];
  const latency: number[] = [];
  let [waiting, served, share] = [0, 0, Number.POSITIVE_INFINITY];
  demands.forEach((demand, m) => {
    const mine = byModel[m] ?? [];
    const capacity = mine.reduce((sum, o) => sum + (counts[o] ?? 0) * (usable[o]?.rate ?? 0), 0);
    const { cost, left, taken } = split(
      demand.rate,
      mine.map((o) => ({ usable: usable[o], replicas: counts[o] ?? 0 })),
    );
    mine.forEach((o, i) => {
      rates[o] = taken[i] ?? 0;
    });
    unserved.push(left > SERVED_TOLERANCE * demand.rate ? left : 0);
    latency.push(demand.rate > left ? cost / (demand.rate - left) : Number.NaN);
    waiting += Number.isNaN(cost) ? 0 : cost;
    if (demand.model.opaque !== true) served += demand.rate - left;
    if (demand.rate > 0) share = Math.min(share, capacity / demand.rate);
  });
  return { rates, unserved, latency, meanLatencyS: served > 0 ? waiting / served : Number.NaN, waiting, share };
}

interface Part {
  usable: UsableCapacity | undefined;
  replicas: number;
}

/** `taken`: requests/s on each part; `left`: requests/s that fit no part; `cost`: sum of requests/s times seconds. */
export function split(rate: number, parts: readonly Part[]): { taken: number[]; left: number; cost: number } {
  const taken = parts.map(() => 0);
  if (parts.some(({ usable }) => usable !== undefined && usable.rate > 0 && usable.curve.length === 0)) {
    const capacity = parts.reduce((sum, { usable, replicas }) => sum + replicas * (usable?.rate ?? 0), 0);
    const used = Math.min(rate, capacity);
    return {
      taken: parts.map(({ usable, replicas }) => (used * replicas * (usable?.rate ?? 0)) / capacity),
      left: rate - used,
      cost: Number.NaN,
    };
  }
  const pieces = parts.flatMap(({ usable, replicas }, part) =>
    segments(usable?.curve ?? []).map(({ width, slope }) => ({ part, width: width * replicas, slope })),
  );
  pieces.sort((a, b) => a.slope - b.slope);
  let [left, cost] = [rate, 0];
  for (const { part, width, slope } of pieces) {
    const here = Math.min(left, width);
    if (here <= 0) break;
    taken[part] = (taken[part] ?? 0) + here;
    cost += here * slope;
    left -= here;
  }
  return { taken, left, cost };
}
