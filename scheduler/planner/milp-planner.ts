import { SchedulerError } from '../errors.ts';
import { type Evaluation, evaluatePlan } from '../solver/evaluate-plan.ts';
import { usdPerHour } from '../solver/formulation.ts';
import type { Demand, Placement, Pool } from '../solver/planning-problem.ts';
import { type SolverDecision, solvePlan } from '../solver/solve-plan.ts';
import { explainModels, explainPools } from './explain-plan.ts';
import { explainShortfall } from './explain-shortfall.ts';
import { isRate, RATE_WORDS } from './read-input.ts';
import type { Plan, PlannedReplicas, Planner } from './types.ts';

/** The default planner: mixed-integer linear programming over simulated options. */
export const planByMilp: Planner = async (inventory, workload, current, { options }) => {
  checkPlannerInput(inventory, workload, current);
  if (workload.every(({ rate }) => rate === 0)) {
    throw new SchedulerError('bad_input', 'the workload has no requests: every rate is 0');
  }
  const unpriced = inventory.find(({ gpu }) => gpu.usdPerHour === 0);
  if (unpriced !== undefined && (options.objective === 'cost' || options.budget !== undefined)) {
    throw new SchedulerError(
      'bad_input',
      `the price of ${unpriced.gpu.id} is unknown, so the cost cannot be minimized: give pool ${unpriced.id} a usd_hour`,
    );
  }
  const decision = await solvePlan(inventory, workload, current, options);
  return describe(decision, inventory, workload);
};

/** Checks across inventory and workload, which the schema cannot express. */
export function checkPlannerInput(
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
  if (twice !== undefined) throw new SchedulerError('bad_input', `${twice} occurs twice in the workload`);
  for (const { pool, replicas, model } of current) {
    if (!inventory.some(({ id }) => id === pool))
      throw new SchedulerError('bad_input', `${model} runs on pool ${pool}, which is not in the inventory`);
    if (!Number.isInteger(replicas) || replicas < 0)
      throw new SchedulerError('bad_input', `${model}: the number of running replicas cannot be ${replicas}`);
  }
}

function describe(decision: SolverDecision, pools: readonly Pool[], demands: readonly Demand[]): Plan {
  const { problem, counts, report, shortfall, asked } = decision;
  const { options, usable } = problem;
  const evaluation = evaluatePlan(options, usable, counts, demands);
  const placements = placementsOf(decision, evaluation, pools, demands);
  return {
    objective: asked.objective,
    placements,
    models: explainModels(decision, evaluation, placements, pools, demands),
    pools: explainPools(decision, pools, demands),
    meanLatencyS: Number.isNaN(evaluation.meanLatencyS) ? undefined : evaluation.meanLatencyS,
    servedShare: evaluation.share,
    usdPerHour: options.reduce((sum, option, o) => sum + (counts[o] ?? 0) * usdPerHour(option, pools), 0),
    report,
    infeasible: shortfall === undefined ? undefined : explainShortfall(decision, evaluation, pools, demands),
  };
}

function placementsOf(
  { problem, counts }: SolverDecision,
  { rates }: Evaluation,
  pools: readonly Pool[],
  demands: readonly Demand[],
): PlannedReplicas[] {
  const { options } = problem;
  return demands.flatMap((demand, m) => {
    const mine = options.flatMap((option, o) => (option.demand === m && (counts[o] ?? 0) > 0 ? [{ option, o }] : []));
    const capacity = mine.reduce((sum, { option, o }) => sum + option.capacity * (counts[o] ?? 0), 0);
    const planned = mine.reduce((sum, { o }) => sum + (rates[o] ?? 0), 0);
    return mine.map(({ option, o }): PlannedReplicas => {
      const [pool, replicas] = [pools[option.pool], counts[o] ?? 0];
      const full = option.capacity * replicas;
      return {
        model: demand.model.id,
        pool: pool?.id ?? '',
        gpu: pool?.gpu.id ?? '',
        tp: option.tp,
        ...(option.spread === undefined ? {} : { spread: option.spread }),
        gpus: option.gpus,
        replicas,
        // A model without demand is divided among its replicas in proportion to their capacity.
        share: planned > 0 ? (rates[o] ?? 0) / planned : full / Math.max(capacity, 1e-12),
        rate: rates[o] ?? 0,
        capacity: full,
        source: option.source,
      };
    });
  });
}
