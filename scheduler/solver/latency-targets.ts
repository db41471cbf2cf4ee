import { meanLength } from '../simulator/length-distribution.ts';
import { rateWithin, upTo } from './latency-curve.ts';
import type { Curve, Demand, Option, PlanOptions } from './planning-problem.ts';

/** Maximum load of a replica that keeps headroom for bursts. */
export const HEADROOM_LOAD = 0.85;

/**
 * A person waits at most this many seconds for the first token, and then gets 20 tokens/s: twice as fast as most people
 * read.
 */
const INTERACTIVE_FIRST_S = 2;
const INTERACTIVE_TOKENS_PER_S = 20;
/**
 * The target of an interactive model is at least this multiple of the model's latency without load on the fastest
 * available GPU, because otherwise no GPU could meet the target of a slow model.
 */
const SLOWEST = 2;

/** The part of one replica that a plan may use. */
export interface UsableCapacity {
  /** Maximum requests/s. */
  rate: number;
  /** Rates and latencies up to that rate; empty if latency does not count. */
  curve: Curve;
}

/** Mean seconds that each replica of a model must keep to, and whether the operator set the target. */
export interface LatencyTarget {
  latencyS: number;
  asked: boolean;
}

/**
 * `options`: this model's options with estimated latencies. With simulated latencies, the target would change while
 * options are simulated one after another.
 */
export function latencyTarget(demand: Demand, options: readonly Option[], settings: PlanOptions): LatencyTarget {
  // The latency of a model of unknown shape is unknown.
  if (demand.model.opaque === true) return { latencyS: Number.POSITIVE_INFINITY, asked: false };
  const asked = settings.latencyS ?? demand.latencyS;
  if (asked !== undefined) return { latencyS: asked, asked: true };
  if (demand.class === 'batch') return { latencyS: Number.POSITIVE_INFINITY, asked: false };
  const reader = INTERACTIVE_FIRST_S + meanLength(demand.output) / INTERACTIVE_TOKENS_PER_S;
  const fastest = Math.min(...options.map(({ points }) => points[0]?.latencyS ?? Number.POSITIVE_INFINITY));
  return { latencyS: Math.max(reader, Number.isFinite(fastest) ? SLOWEST * fastest : 0), asked: false };
}

/** Returns the part of an option that a plan may use under the objective and the target. */
export function usableCapacity(
  option: Option,
  target: LatencyTarget,
  { objective }: Pick<PlanOptions, 'objective'>,
): UsableCapacity {
  if (option.observed === true)
    return { rate: option.capacity, curve: objective === 'throughput' ? [] : option.points };
  switch (objective) {
    case 'throughput':
      return { rate: option.capacity, curve: [] };
    case 'latency': {
      const most = option.points.at(-1)?.rate ?? 0;
      const rate = target.asked ? Math.min(most, rateWithin(option.points, target.latencyS)) : most;
      return { rate, curve: upTo(option.points, rate) };
    }
    case 'gpus':
    case 'cost': {
      const rate = Math.min(HEADROOM_LOAD * option.capacity, rateWithin(option.points, target.latencyS));
      return { rate, curve: upTo(option.points, rate) };
    }
  }
}
