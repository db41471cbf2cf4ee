import { SchedulerError } from '../errors.ts';
import { deploymentProblem } from '../roofline/model-deployment.ts';
import { gpusOf, parallelismProblem } from '../roofline/parallelism.ts';
import { packsInto } from '../solver/packing-constraints.ts';
import { type Demand, type PlanOptions, type Pool, poolGpus } from '../solver/planning-problem.ts';
import type { Plan } from './types.ts';

/**
 * @throws SchedulerError `bad_input` if a plan assigns more GPUs than the inventory has, or has a placement that cannot
 * run. No program acts on such a plan.
 */
export function checkPlan(plan: Plan, pools: readonly Pool[], demands: readonly Demand[], options: PlanOptions): void {
  const fail = (what: string): never => {
    throw new SchedulerError('bad_input', `the planner returned an impossible plan: ${what}`);
  };
  const used = new Map<string, Map<number, number>>();
  for (const { model, pool: id, tp, spread = { tp }, replicas, share } of plan.placements) {
    const gpus = gpusOf(spread);
    const pool = pools.find((one) => one.id === id);
    const demand = demands.find((one) => one.model.id === model);
    if (pool === undefined || demand === undefined)
      return fail(`${model} on ${id}: no such ${pool === undefined ? 'pool' : 'model in the workload'}`);
    if (!Number.isInteger(replicas) || replicas < 0) return fail(`${replicas} replicas of ${model}`);
    if (!Number.isFinite(share) || share < 0) return fail(`${model} on ${id}: a share of ${share}`);
    const known = demand.model.opaque !== true;
    const problem = known ? parallelismProblem(demand.model, spread) : undefined;
    if (problem !== undefined) return fail(problem);
    if (gpus > pool.gpusPerNode) return fail(`${model}: ${gpus} GPUs in a node of ${pool.gpusPerNode}`);
    const deployment = { model: demand.model, gpu: pool.gpu, ...spread, weights: demand.weights, kv: demand.kv };
    const unfit = known ? deploymentProblem(deployment, options.limits.memoryFraction) : undefined;
    if (unfit !== undefined) return fail(unfit);
    const sizes = used.get(id) ?? new Map<number, number>();
    used.set(id, sizes.set(gpus, (sizes.get(gpus) ?? 0) + replicas));
  }
  for (const pool of pools) {
    const sizes = used.get(pool.id) ?? new Map<number, number>();
    const total = [...sizes].reduce((sum, [size, replicas]) => sum + size * replicas, 0);
    if (total > poolGpus(pool)) return fail(`${total} GPUs of ${pool.id}, which has ${poolGpus(pool)}`);
    if (!packsInto(sizes, pool)) return fail(`its replicas do not fit the nodes of ${pool.id}`);
  }
}
