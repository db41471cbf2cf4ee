/** Other replicas of one model on the GPUs that a layout uses. Pure. */
import {
  type FollowedPool,
  type FollowProblem,
  type ForecastDemand,
  type Layout,
  optionsOf,
  type ReplicaOption,
} from './follow-problem.ts';
import { transitionCost } from './transition-cost.ts';

/** Number of layouts from which on none is returned: to compare more takes longer than a decision is worth. */
const LAYOUTS_MAX = 1_000;
const TRIED_MAX = 50_000;
/** Layouts with the lowest cost that are returned. */
const CHOSEN = 12;

/**
 * For each layout and model, the best layouts with other replicas of this model on no more GPUs. The integer program
 * finds only the layout with the fewest changes, although another one on the same GPUs may respond in a fraction of the
 * time. Only for models that can be simulated: averages hardly differ between these layouts.
 */
export function alternativeLayouts(problem: FollowProblem, layouts: readonly Layout[]): Layout[] {
  const known = new Map<string, Layout[]>();
  return layouts.flatMap((layout) =>
    problem.models.flatMap((demand) => {
      const { model, pin, examples } = demand;
      const own = optionsOf(problem, model).filter((i) => problem.options[i]?.fixed !== true);
      const isSimulated = examples !== undefined && own.every((i) => problem.options[i]?.engine !== undefined);
      if (pin !== undefined || !isSimulated) return [];
      const pools = poolsOf(problem, layout, own);
      // Layouts for several demands often give a model the same GPUs.
      const key = JSON.stringify([model, pools]);
      const others = known.get(key) ?? layoutsOn(problem, demand, own, pools);
      known.set(key, others);
      return others.map((other) => layout.map((count, i) => (own.includes(i) ? (other[i] ?? 0) : count)));
    }),
  );
}

/** The parts of the pools that these options of a layout use. */
function poolsOf({ options, pools }: FollowProblem, layout: Layout, own: readonly number[]): FollowedPool[] {
  return pools.map(({ id, gpus, replicas }) => {
    const used = own.filter((i) => options[i]?.place.pool === id);
    const sum = (of: (i: number) => number) => used.reduce((all, i) => all + of(i), 0);
    const count = sum((i) => layout[i] ?? 0);
    // Fewer replicas than GPUs: a node runs one engine.
    return {
      id,
      gpus: sum((i) => (layout[i] ?? 0) * (options[i]?.gpus ?? 0)),
      replicas: replicas < gpus ? count : gpus,
    };
  });
}

/** The best layouts in which these options of a model fill these pools. They have no replicas of other models. */
function layoutsOn(
  problem: FollowProblem,
  demand: ForecastDemand,
  own: readonly number[],
  pools: readonly FollowedPool[],
): Layout[] {
  const layouts = filled(problem, undominated(problem, own), pools);
  if (layouts.length <= CHOSEN) return layouts;
  // The costs of other models are equal in all these layouts.
  const alone = { ...problem, models: [demand] };
  return layouts
    .map((one) => ({ one, cost: transitionCost(alone, one, 0) }))
    .sort((a, b) => a.cost - b.cost)
    .slice(0, CHOSEN)
    .map(({ one }) => one);
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

/** Replicas of these options beside the fixed ones, in all ways that leave space for no other replica. */
function filled({ options, running }: FollowProblem, own: readonly number[], pools: readonly FollowedPool[]): Layout[] {
  const counts = options.map(({ fixed }, i) => (fixed === true ? (running[i] ?? 0) : 0));
  const left = new Map(pools.map((pool) => [pool.id, { ...pool }]));
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
