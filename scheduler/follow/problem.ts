/** Following the forecast on a live network: what a decision is made on. Pure: times in seconds, rates in requests/s. */
import { type ReplicaPlace, spreadText } from '../controller/actions.ts';

/** A way in which one replica of a model can run on nodes of one pool. */
export interface ReplicaOption {
  place: ReplicaPlace;
  /** GPUs that one replica takes. */
  gpus: number;
  /** `rates[kind]`: requests/s if it served that kind alone; 0: it cannot. */
  rates: readonly number[];
  /** `latencyS[kind]`: seconds of one answer without a wait. */
  latencyS: readonly number[];
  /** Not this controller's: it stays as it is. */
  fixed?: boolean;
}

export interface FollowedPool {
  id: string;
  gpus: number;
  /** Replicas that fit: one per node where a node runs one engine. */
  replicas: number;
}

/** What is expected of one model. */
export interface ModelDemand {
  model: string;
  /** Names of its kinds. */
  kinds: readonly string[];
  /** `mean[step][kind]`: requests/s in the slots that come, and as high as they may well be. */
  mean: readonly (readonly number[])[];
  high: readonly (readonly number[])[];
  /** An operator's pin: replicas by option, whatever the forecast says. */
  pin?: Layout;
}

/** Replicas of each option, in their order. */
export type Layout = readonly number[];

export interface FollowProblem {
  options: readonly ReplicaOption[];
  pools: readonly FollowedPool[];
  models: readonly ModelDemand[];
  /** What runs. */
  running: Layout;
  slotS: number;
  /** Seconds from the order to end a replica until another one serves on its node. */
  switchS: number;
  /** Replicas that change at once; the others serve meanwhile. */
  wave: number;
}

export const sameLayout = (a: Layout, b: Layout): boolean => a.every((count, i) => count === b[i]);

/** Replicas of `to` that do not run yet. */
export const startsOf = (from: Layout, to: Layout): number =>
  to.reduce((sum, count, i) => sum + Math.max(0, count - (from[i] ?? 0)), 0);
export const stopsOf = (from: Layout, to: Layout): number => startsOf(to, from);

/** `TP 2`, and where its model may run on several kinds of GPUs `TP 2 on a100`. */
export function placeText({ options }: Pick<FollowProblem, 'options'>, place: ReplicaPlace): string {
  const several = options.some((one) => one.place.model === place.model && one.place.pool !== place.pool);
  return several ? `${spreadText(place)} on ${place.pool}` : spreadText(place);
}

/** Indexes of one model's options. */
export function optionsOf({ options }: Pick<FollowProblem, 'options'>, model: string): number[] {
  return options.flatMap(({ place }, i) => (place.model === model ? [i] : []));
}
