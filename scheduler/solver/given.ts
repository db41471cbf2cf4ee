import type { Problem } from './formulation.ts';
import type { Demand, Option, Placement, PlanOptions, Pool } from './problem.ts';

/** Replicas that stay where they are, by option. */
export function keep(
  options: readonly Option[],
  demands: readonly Demand[],
  pools: readonly Pool[],
  current: readonly Placement[],
  settings: PlanOptions,
): number[] {
  return options.map((option) => {
    const [model, pool] = [demands[option.demand]?.model.id, pools[option.pool]?.id];
    const here = current.filter(
      (placement) =>
        (placement.pinned === true || !settings.reclaim) &&
        placement.model === model &&
        placement.pool === pool &&
        placement.tp === option.tp,
    );
    return here.reduce((sum, { replicas }) => sum + replicas, 0);
  });
}

/** Why no plan at all is possible, before any demand is looked at. */
export function whyInfeasible({ options, pools, floor, settings }: Problem): string {
  if (settings.latencyS !== undefined)
    return `no plan keeps every model's mean latency at ${settings.latencyS} s; smallest relaxation: a longer --latency`;
  if (settings.budget !== undefined)
    return `what runs already costs more than the budget of ${settings.budget} USD/h; allow --reclaim or raise it`;
  const crowded = pools.find((pool, p) => {
    const each = (tp: number) => (pool.oneEngine ? pool.gpusPerNode : tp);
    const used = options.reduce((sum, { pool: at, tp }, o) => sum + (at === p ? each(tp) * (floor[o] ?? 0) : 0), 0);
    return used > pool.nodes * pool.gpusPerNode;
  });
  return crowded
    ? `pool ${crowded.id}: what runs there needs more GPUs than it has (${crowded.nodes * crowded.gpusPerNode})`
    : 'no plan satisfies all constraints';
}
