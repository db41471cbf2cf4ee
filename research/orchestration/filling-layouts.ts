/** The layouts in which no further replica fits, if only one model may change. Pure. */
import {
  type FollowedPool,
  type FollowProblem,
  type Layout,
  optionsOf,
  type ReplicaOption,
} from '../../scheduler/follow/follow-problem.ts';
import { transitionCost } from '../../scheduler/follow/transition-cost.ts';

/** Number of layouts from which on none is returned: to compare more takes longer than a decision is worth. */
const LAYOUTS_MAX = 1_000;
const TRIED_MAX = 50_000;
/** Layouts with the lowest cost that are returned. */
const CHOSEN = 12;

/**
 * The best layouts that fill the nodes. The integer program only finds the layout with the fewest changes that has
 * enough capacity, which may leave half of the GPUs without work while requests take four times as long. The live
 * planner does not use them: its factory would start jobs that the load does not need.
 */
export function fillingLayouts(problem: FollowProblem): Layout[] {
  const free = problem.models.filter(({ pin }) => pin === undefined);
  const [model] = free;
  if (model === undefined || free.length > 1) return [];
  const own = undominated(problem, optionsOf(problem, model.model));
  const layouts = filled(problem, own);
  if (layouts.length <= CHOSEN) return layouts;
  return layouts
    .map((layout) => ({ layout, cost: transitionCost(problem, layout, 0) }))
    .sort((a, b) => a.cost - b.cost)
    .slice(0, CHOSEN)
    .map(({ layout }) => layout);
}

/** Leaves out options that another one of the pool with at most as many GPUs beats in all rates and latencies. */
function undominated({ options }: FollowProblem, indexes: readonly number[]): number[] {
  const own = indexes.flatMap((i) => {
    const option = options[i];
    return option === undefined || option.fixed === true ? [] : [{ i, option }];
  });
  const beats = (a: ReplicaOption, b: ReplicaOption) =>
    a.place.pool === b.place.pool &&
    a.gpus <= b.gpus &&
    a.rates.every((rate, kind) => rate >= (b.rates[kind] ?? 0)) &&
    a.latencyS.every((latency, kind) => latency <= (b.latencyS[kind] ?? Number.POSITIVE_INFINITY));
  return own
    .filter(
      ({ i, option }) =>
        !own.some((one) => one.i !== i && beats(one.option, option) && (one.i < i || !beats(option, one.option))),
    )
    .map(({ i }) => i);
}

/** Adds replicas of these options to those that cannot change, in all ways that leave space for none of them. */
function filled({ options, pools, models, running }: FollowProblem, own: readonly number[]): Layout[] {
  const counts = options.map(({ place, fixed }, i) => {
    if (fixed === true) return running[i] ?? 0;
    return models.find(({ model }) => model === place.model)?.pin?.[i] ?? 0;
  });
  const left = new Map(pools.map((pool) => [pool.id, { ...pool }]));
  for (const [i, { place, gpus }] of options.entries()) take(left.get(place.pool), gpus, counts[i] ?? 0);
  const fits = (i: number): boolean => {
    const { place, gpus = 1 } = options[i] ?? {};
    const pool = left.get(place?.pool ?? '');
    return pool !== undefined && pool.replicas >= 1 && pool.gpus >= gpus;
  };
  const found: number[][] = [];
  let tried = 0;
  const extend = (at: number): void => {
    const i = own[at];
    if (i === undefined) {
      tried++;
      if (!own.some(fits) && own.some((one) => (counts[one] ?? 0) > 0)) found.push([...counts]);
      return;
    }
    const { place, gpus = 1 } = options[i] ?? {};
    const pool = left.get(place?.pool ?? '');
    let replicas = 0;
    for (; tried <= TRIED_MAX && found.length <= LAYOUTS_MAX; replicas++) {
      counts[i] = replicas;
      extend(at + 1);
      if (!fits(i)) break;
      take(pool, gpus, 1);
    }
    take(pool, gpus, -replicas);
    counts[i] = 0;
  };
  extend(0);
  return tried > TRIED_MAX || found.length > LAYOUTS_MAX ? [] : found;
}

function take(pool: FollowedPool | undefined, gpus: number, replicas: number): void {
  if (pool === undefined) return;
  pool.gpus -= gpus * replicas;
  pool.replicas -= replicas;
}
