import type { Counts, Demand, Objective, Option } from './problem.ts';

/** Highest load that a plan for least cost relies on; the rest is headroom for bursts. */
export const COST_LOAD = 0.85;

/** The part of an option's curve that a plan may use. */
export function usablePoints(option: Option, objective: Objective): Option['points'] {
  if (objective !== 'cost') return option.points;
  return option.points.filter(({ rate }) => rate <= COST_LOAD * option.capacity * 1.0001);
}

/** What a set of replicas does with the demand, by the options' curves. */
export interface Evaluation {
  /** Requests/s that each option's replicas get together. */
  rates: number[];
  /** Requests/s of each model that nobody serves. */
  unserved: number[];
  /** Mean seconds of each model's served requests, and of all. */
  latency: number[];
  meanLatencyS: number;
  /** Served share of the worst served model, if all replicas run flat out: the throughput objective. */
  z: number;
}

interface Segment {
  option: number;
  /** Requests/s that fit in it. */
  width: number;
  /** Seconds each adds to the sum over requests. */
  slope: number;
}

/**
 * The best split of each model's rate over its replicas: the curves are convex, so cheapest segments first is optimal. `rates` are the
 * router's weights.
 */
export function evaluate(
  options: readonly Option[],
  counts: Counts,
  demands: readonly Demand[],
  objective: Objective = 'latency',
): Evaluation {
  const rates = options.map(() => 0);
  const unserved: number[] = [];
  const latency: number[] = [];
  let [sum, served, z] = [0, 0, Number.POSITIVE_INFINITY];
  demands.forEach((demand, m) => {
    const segments: Segment[] = [];
    let capacity = 0;
    options.forEach((option, o) => {
      const replicas = counts[o] ?? 0;
      if (option.demand !== m || replicas === 0) return;
      capacity += replicas * option.capacity;
      segments.push(...segmentsOf(usablePoints(option, objective), o, replicas));
    });
    segments.sort((a, b) => a.slope - b.slope);
    let left = demand.rate;
    let cost = 0;
    for (const { option, width, slope } of segments) {
      const taken = Math.min(left, width);
      if (taken <= 0) break;
      rates[option] = (rates[option] ?? 0) + taken;
      cost += taken * slope;
      left -= taken;
    }
    const here = demand.rate - left;
    unserved.push(left > 1e-9 * demand.rate ? left : 0);
    latency.push(here > 0 ? cost / here : Number.NaN);
    sum += cost;
    served += here;
    if (demand.rate > 0) z = Math.min(z, capacity / demand.rate);
  });
  return { rates, unserved, latency, meanLatencyS: served > 0 ? sum / served : Number.NaN, z };
}

function segmentsOf(points: Option['points'], index: number, replicas: number): Segment[] {
  const segments: Segment[] = [];
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]];
    if (a === undefined || b === undefined) continue;
    const width = b.rate - a.rate;
    const slope = (b.rate * b.latencyS - a.rate * a.latencyS) / width;
    segments.push({ option: index, width: width * replicas, slope });
  }
  return segments;
}
