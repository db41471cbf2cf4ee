/** The input of a decision by forecast. Pure: times in seconds, rates in requests/s. */
import type { StepModel } from '../roofline/step-model.ts';
import type { SimulatedEngineLimits } from '../simulator/engine-limits.ts';
import { type ReplicaPlace, spreadText } from '../solver/replica-place.ts';
import type { KindLengths } from '../workload/request-kinds.ts';

/** A way to run one replica of a model on nodes of one pool. */
export interface ReplicaOption {
  place: ReplicaPlace;
  /** GPUs of one replica. */
  gpus: number;
  /** Requests/s if the replica served only that kind, as `rates[kind]`; 0: it cannot serve the kind. */
  rates: readonly number[];
  /** Seconds of one response without queueing, as `latencyS[kind]`. */
  latencyS: readonly number[];
  /** The engine of a replica, for simulations; absent: its rates are measured. */
  engine?: { step: StepModel; limits: SimulatedEngineLimits };
  /** True if a plan cannot change the replicas of this option. */
  fixed?: boolean;
}

export interface FollowedPool {
  id: string;
  gpus: number;
  /** Maximum number of replicas: one per node if a node runs one engine. */
  replicas: number;
}

/** The expected demand of one model. */
export interface ForecastDemand {
  model: string;
  /** Names of its kinds. */
  kinds: readonly string[];
  /**
   * Expected requests/s in the slots ahead, as `mean[step][kind]`. `high`: the upper end of the forecast's interval.
   */
  mean: readonly (readonly number[])[];
  high: readonly (readonly number[])[];
  /** Lengths of requests of each kind, from which simulations draw; absent: nothing is simulated. */
  examples?: readonly (readonly KindLengths[])[];
  /** Replicas by option that an operator ordered, regardless of the forecast. */
  pin?: Layout;
}

/** Number of replicas of each option, in the order of the options. */
export type Layout = readonly number[];

export interface FollowProblem {
  options: readonly ReplicaOption[];
  pools: readonly FollowedPool[];
  models: readonly ForecastDemand[];
  /** Replicas that run now. */
  running: Layout;
  slotS: number;
  /** Seconds from the order to end a replica until the new replica serves on its node. */
  switchS: number;
  /** Number of replicas that change at the same time, while the others serve. */
  wave: number;
}

/**
 * A kind without expected requests counts with this share of the demand of its model, so that each layout can serve its
 * requests.
 */
export const TRACE_DEMAND = 1e-3;

export const sameLayout = (a: Layout, b: Layout): boolean => a.every((count, i) => count === b[i]);

/** A key of a map by layout. */
export const layoutKey = (layout: Layout): string => layout.join();

/** Number of replicas of `to` that do not run yet. */
export const startsOf = (from: Layout, to: Layout): number =>
  to.reduce((sum, count, i) => sum + Math.max(0, count - (from[i] ?? 0)), 0);
export const stopsOf = (from: Layout, to: Layout): number => startsOf(to, from);

/** Formats a place: `TP 2`, or `TP 2 on a100` if the model may run on several kinds of GPUs. */
export function placeText({ options }: Pick<FollowProblem, 'options'>, place: ReplicaPlace): string {
  const several = options.some((one) => one.place.model === place.model && one.place.pool !== place.pool);
  return several ? `${spreadText(place)} on ${place.pool}` : spreadText(place);
}

/** Indexes of one model's options. */
export function optionsOf({ options }: Pick<FollowProblem, 'options'>, model: string): number[] {
  return options.flatMap(({ place }, i) => (place.model === model ? [i] : []));
}
