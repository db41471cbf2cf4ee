import { type Evaluation, evaluatePlan } from './evaluate-plan.ts';
import { type Goal, objectiveOf, type SolverProblem, usdPerHour } from './formulation.ts';
import { type LatencyTarget, usableCapacity } from './latency-targets.ts';
import type { OptionTable } from './option-table.ts';
import { packs } from './packing-constraints.ts';
import type { Counts, Demand, PlanOptions, Pool } from './planning-problem.ts';

/** If a problem has more integers than this, branch and cut by HiGHS hardly improves on the search within a minute. */
const BRANCH_MAX = 400;
/**
 * If a problem with more integers than BRANCH_MAX has at least this many models, column generation improves on the
 * search, because models are connected only through the pools.
 */
const COLUMNS_MODELS_MIN = 20;

/** A planning problem, independent of its goal. */
export interface SolverContext {
  table: OptionTable;
  demands: readonly Demand[];
  pools: readonly Pool[];
  floor: readonly number[];
  settings: PlanOptions;
  /** Latency target of each model. */
  targets: readonly LatencyTarget[];
}

/** True if branch and cut of the whole program is worth its time, compared with column generation. */
export const isSmall = ({ table, demands }: SolverContext): boolean =>
  table.options.length <= BRANCH_MAX || demands.length < COLUMNS_MODELS_MIN;

export function problemOf({ table, targets, ...rest }: SolverContext, goal: Goal): SolverProblem {
  const none: LatencyTarget = { latencyS: Number.POSITIVE_INFINITY, asked: false };
  const usable = table.options.map((option) => usableCapacity(option, targets[option.demand] ?? none, rest.settings));
  return { ...rest, options: table.options, usable, goal };
}

/** Objective value of a plan; Infinity if it breaks a condition. */
export function planValue(problem: SolverProblem, counts: Counts): { value: number; evaluation: Evaluation } {
  const { options, usable, demands, pools, settings } = problem;
  const evaluation = evaluatePlan(options, usable, counts, demands);
  const usd = options.reduce((sum, option, o) => sum + (counts[o] ?? 0) * usdPerHour(option, pools), 0);
  const within =
    packs(options, counts, pools) &&
    usd <= (settings.budget ?? Number.POSITIVE_INFINITY) + 1e-6 &&
    hasStable(problem, counts);
  return { value: within ? objectiveOf(problem, counts, evaluation) : Number.POSITIVE_INFINITY, evaluation };
}

function hasStable({ options, demands, pools }: SolverProblem, counts: Counts): boolean {
  return demands.every(
    ({ alwaysOn }, m) =>
      alwaysOn !== true ||
      options.some(
        (option, o) => option.demand === m && (counts[o] ?? 0) > 0 && pools[option.pool]?.tier !== 'volatile',
      ),
  );
}

export const relativeGap = (value: number, bound: number): number =>
  Number.isFinite(value) && Number.isFinite(bound)
    ? Math.max(0, (value - bound) / Math.max(1e-9, Math.abs(value), Math.abs(bound)))
    : 1;

/**
 * Rounds a bound up to whole GPUs: a plan that needs at least 1.3 GPUs needs at least 2. Half a GPU is subtracted
 * first, because the cost in the objective adds less than that, see `replicaPrice`.
 */
export function tightened(bound: number, { goal, settings }: SolverProblem): number {
  if (goal.kind !== 'replicas' || settings.objective !== 'gpus') return bound;
  return Math.max(bound, Math.ceil(bound - 0.5));
}
