import { SchedulerError } from '../errors.ts';
import { evaluate } from '../solver/evaluate.ts';
import { type Decision, decide } from '../solver/plan.ts';
import type { Demand, Placement, Pool } from '../solver/problem.ts';
import { explainModels, explainOverload, explainPools } from './explain.ts';
import { isRate, RATE_WORDS } from './input.ts';
import type { Plan, PlannedReplicas, Planner } from './types.ts';

/** The default planner: mixed-integer linear programming over simulated options. */
export const plan: Planner = async (inventory, workload, current, { options }) => {
  checkInput(inventory, workload, current);
  if (workload.every(({ rate }) => rate === 0)) {
    throw new SchedulerError('bad_input', 'the workload asks for nothing: every rate is 0');
  }
  const unpriced = inventory.find(({ gpu }) => gpu.usdPerHour === 0);
  if (unpriced !== undefined && (options.objective === 'cost' || options.budget !== undefined)) {
    throw new SchedulerError(
      'bad_input',
      `the price of ${unpriced.gpu.id} is not known, so money cannot decide: give pool ${unpriced.id} a usd_hour`,
    );
  }
  const decision = await decide(inventory, workload, current, options);
  return describe(decision, inventory, workload);
};

/** What the schema cannot see: across inventory and workload. */
export function checkInput(
  inventory: readonly Pool[],
  workload: readonly Demand[],
  current: readonly Placement[],
): void {
  if (inventory.length === 0) throw new SchedulerError('bad_input', 'the inventory has no GPU');
  if (workload.length === 0) throw new SchedulerError('bad_input', 'the workload has no model');
  for (const { model, rate, cv } of workload) {
    if (!isRate(rate)) throw new SchedulerError('bad_input', `${model.id}: ${RATE_WORDS}, not ${rate}`);
    if (!Number.isFinite(cv) || cv < 0)
      throw new SchedulerError('bad_input', `${model.id}: cv must be 0 or more, not ${cv}`);
  }
  const names = workload.map(({ model }) => model.id);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) throw new SchedulerError('bad_input', `${twice} stands twice in the workload`);
  for (const { pool, replicas, model } of current) {
    if (!inventory.some(({ id }) => id === pool))
      throw new SchedulerError('bad_input', `${model} runs on pool ${pool}, which the inventory lacks`);
    if (!Number.isInteger(replicas) || replicas < 0)
      throw new SchedulerError('bad_input', `${model}: ${replicas} replicas run?`);
  }
}

export function describe(decision: Decision, pools: readonly Pool[], demands: readonly Demand[]): Plan {
  const { problem, counts, overloaded, report } = decision;
  const { options, settings } = problem;
  const evaluation = evaluate(options, counts, demands, settings.objective);
  const placements: PlannedReplicas[] = [];
  const overload = overloaded || settings.objective === 'throughput';
  demands.forEach((demand, m) => {
    const mine = options
      .map((option, o) => ({ option, o }))
      .filter(({ option, o }) => option.demand === m && (counts[o] ?? 0) > 0);
    const capacity = mine.reduce((sum, { option, o }) => sum + option.capacity * (counts[o] ?? 0), 0);
    const planned = mine.reduce((sum, { o }) => sum + (evaluation.rates[o] ?? 0), 0);
    for (const { option, o } of mine) {
      const pool = pools[option.pool];
      const full = option.capacity * (counts[o] ?? 0);
      // Flat out, shares follow what each can do; below that, what makes the mean latency least.
      const share = overload || planned <= 0 ? full / Math.max(capacity, 1e-12) : (evaluation.rates[o] ?? 0) / planned;
      placements.push({
        model: demand.model.id,
        pool: pool?.id ?? '',
        gpu: pool?.gpu.id ?? '',
        tp: option.tp,
        replicas: counts[o] ?? 0,
        share,
        rate: share * Math.min(demand.rate, capacity),
        capacity: full,
        source: option.source,
      });
    }
  });
  const usdPerHour = placements.reduce((sum, one) => {
    const pool = pools.find(({ id }) => id === one.pool);
    return sum + one.replicas * one.tp * (pool?.gpu.usdPerHour ?? 0);
  }, 0);
  return {
    objective: settings.objective,
    placements,
    models: explainModels(decision, evaluation, pools, demands),
    pools: explainPools(decision, pools, demands),
    meanLatencyS: overload ? undefined : evaluation.meanLatencyS,
    servedShare: evaluation.z,
    usdPerHour,
    report,
    infeasible: overloaded ? explainOverload(decision, evaluation, pools, demands) : undefined,
  };
}
