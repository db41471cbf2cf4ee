import { SchedulerError } from '../errors.ts';
import { kvCapacityTokens, tpProblem } from '../roofline/deployment.ts';
import { type Demand, type PlanOptions, type Pool, poolGpus } from '../solver/problem.ts';
import type { Plan } from './types.ts';

/** Throws `bad_input` if a planner gave more than there is, or what cannot run: nothing acts on such a plan. */
export function checkPlan(plan: Plan, pools: readonly Pool[], demands: readonly Demand[], options: PlanOptions): void {
  const fail = (what: string): never => {
    throw new SchedulerError('bad_input', `the planner's plan cannot be: ${what}`);
  };
  const used = new Map<string, number[]>();
  for (const { model, pool: id, tp, replicas, share } of plan.placements) {
    const pool = pools.find((one) => one.id === id);
    const demand = demands.find((one) => one.model.id === model);
    if (pool === undefined || demand === undefined)
      return fail(`${model} on ${id}: no such ${pool === undefined ? 'pool' : 'model in the workload'}`);
    if (!Number.isInteger(replicas) || replicas < 0) return fail(`${replicas} replicas of ${model}`);
    if (!Number.isFinite(share) || share < 0) return fail(`${model} on ${id}: a share of ${share}`);
    const problem = tpProblem(demand.model, tp);
    if (problem !== undefined) return fail(problem);
    if (tp > pool.gpusPerNode) return fail(`${model}: ${tp} GPUs in a node of ${pool.gpusPerNode}`);
    const deployment = { model: demand.model, gpu: pool.gpu, tp, weights: demand.weights, kv: demand.kv };
    if (kvCapacityTokens(deployment, options.limits.memoryFraction) <= 0)
      return fail(`${model} does not fit ${tp} × ${pool.gpu.id}`);
    used.set(id, [...(used.get(id) ?? []), ...new Array<number>(Math.min(replicas, 1_000_000)).fill(tp)]);
  }
  for (const pool of pools) {
    const sizes = (used.get(pool.id) ?? []).sort((a, b) => b - a);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    if (total > poolGpus(pool)) return fail(`${total} GPUs of ${pool.id}, which has ${poolGpus(pool)}`);
    const free = new Array<number>(pool.nodes).fill(pool.gpusPerNode);
    for (const size of sizes) {
      const node = free.findIndex((left) => left >= size);
      if (node < 0) return fail(`its replicas do not fit the nodes of ${pool.id}`);
      free[node] = (free[node] ?? 0) - size;
    }
  }
}
