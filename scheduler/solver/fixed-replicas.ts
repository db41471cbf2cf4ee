import { parallelismText } from '../roofline/parallelism.ts';
import { isStable, needsStable, type SolverProblem, takenGpus, usdPerHour } from './formulation.ts';
import { type Demand, type Option, type Placement, type PlanOptions, type Pool, poolGpus } from './planning-problem.ts';

/** Replicas that must stay, by option. */
export function keepReplicas(
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
        placement.tp === option.tp &&
        parallelismText(placement.spread ?? placement) === parallelismText(option.spread ?? option),
    );
    return here.reduce((sum, { replicas }) => sum + replicas, 0);
  });
}

/** Returns why no plan is possible, not even one that serves little. */
export function whyInfeasible(problem: SolverProblem): string {
  const { options, pools, floor, settings, demands } = problem;
  const crowded = pools.find((pool, p) => {
    const used = options.reduce(
      (sum, option, o) => sum + (option.pool === p ? takenGpus(option, pools) * (floor[o] ?? 0) : 0),
      0,
    );
    return used > poolGpus(pool);
  });
  if (crowded !== undefined)
    return `pool ${crowded.id}: its running replicas need more GPUs than it has (${crowded.nodes * crowded.gpusPerNode})`;
  const usd = options.reduce((sum, option, o) => sum + (floor[o] ?? 0) * usdPerHour(option, pools), 0);
  if (settings.budget !== undefined && usd > settings.budget)
    return `the budget of ${settings.budget} USD per hour is too small: the running replicas cost ${usd.toFixed(2)}; raise it, or give --reclaim`;
  const always = demands.flatMap(({ model }, m) => (needsStable(problem, m) ? [{ m, id: model.id }] : []));
  const homeless = always.find(({ m }) => !options.some((one) => one.demand === m && isStable(one, pools)));
  if (homeless !== undefined)
    return `${homeless.id} is always on, but does not fit on a stable node; volatile nodes may leave at any time. Smallest relaxation: a stable node that holds it, or always_on: false`;
  if (always.length > 0) {
    const names = always.map(({ id }) => id).join(', ');
    const money = settings.budget === undefined ? '' : ` within the budget of ${settings.budget} USD per hour`;
    return `the stable nodes have no space${money} for a replica of each model that is always on: ${names}`;
  }
  return 'no plan satisfies all constraints';
}
