import { SchedulerError } from '../errors.ts';
import { keepReplicas, whyInfeasible } from './fixed-replicas.ts';
import type { Goal, SolverProblem } from './formulation.ts';
import { type GoalOutcome, GoalSolver, type PoolPrice } from './goal-solver.ts';
import { Search } from './greedy-search.ts';
import { latencyTarget } from './latency-targets.ts';
import { type Relief, relief, type Shortfall } from './missed-requirement.ts';
import { OptionTable } from './option-table.ts';
import type { Counts, Demand, Placement, PlanOptions, Pool } from './planning-problem.ts';
import { isSmall, planValue, problemOf, relativeGap, type SolverContext } from './solver-context.ts';

export interface SolveReport {
  /**
   * highs: branch and cut. columns: column generation. search: rounding and exchange of replicas came within the gap.
   */
  method: 'highs' | 'search' | 'columns';
  /** optimal: within the requested gap. unproven: the search ended, but the bound is farther away or is not proven. */
  status: 'optimal' | 'time-limit' | 'unproven';
  /** Upper bound of the plan's relative distance from the best one. */
  gap: number;
  /** True if `gap` is proven: no simulation exceeded its estimate. */
  proven: boolean;
  seconds: number;
  integers: number;
  /** Number of options that were simulated; the others are estimates. */
  simulated: number;
  /** True: it is proven that no plan meets the requirements. False with a shortfall: none was found in time. */
  impossible: boolean;
}

/** The solver's plan, before it is explained and simulated as a whole. */
export interface SolverDecision {
  table: OptionTable;
  problem: SolverProblem;
  counts: Counts;
  /** Shadow prices of the relaxation, for each condition on a pool. */
  prices: readonly PoolPrice[];
  report: SolveReport;
  /** The requested settings. */
  asked: PlanOptions;
  shortfall: Shortfall | undefined;
  /** Why there is a shortfall, and the smallest change that would help. */
  relief: Relief | undefined;
}

/** Share of the time limit for a plan that meets the requirements; the rest is for a plan that falls short of them. */
const REQUIREMENTS_SHARE = 0.7;
/** Share of the time limit for solving; the rest is for explaining the plan. */
const TIME_SHARE = 0.92;

export async function solvePlan(
  pools: readonly Pool[],
  demands: readonly Demand[],
  current: readonly Placement[],
  settings: PlanOptions,
): Promise<SolverDecision> {
  const started = performance.now();
  const deadline = started + settings.timeLimitS * TIME_SHARE * 1e3;
  const table = new OptionTable(demands, pools, settings);
  const floor = keepReplicas(table.options, demands, pools, current, settings);
  const context: SolverContext = {
    table,
    demands,
    pools,
    floor,
    settings,
    targets: demands.map((demand, m) => latencyTarget(demand, table.estimatesOf(m), settings)),
  };
  const planned = await asPlanned(context, started, deadline);
  if (planned.counts === undefined && planned.outcome.impossible)
    throw new SchedulerError('infeasible', whyInfeasible(planned.outcome.problem));
  const done = planned.counts === undefined ? inTime(context, planned.outcome) : planned;
  const { outcome, counts } = done;
  // If replicas may be reclaimed, a plan without replicas would end all running replicas.
  if (
    counts === undefined ||
    counts.every((n) => n === 0) ||
    !Number.isFinite(planValue(outcome.problem, counts).value)
  )
    throw new SchedulerError('solver', `found no plan within ${settings.timeLimitS} s; give a longer --time-limit`);
  const seconds = (performance.now() - started) / 1e3;
  const gap = relativeGap(planValue(outcome.problem, counts).value, outcome.bound);
  const proven = table.optimistic && Number.isFinite(outcome.bound);
  const within = gap <= settings.gap + 1e-9 && proven;
  return {
    table,
    problem: outcome.problem,
    counts,
    prices: outcome.prices,
    report: {
      method: outcome.method,
      status: within ? 'optimal' : seconds >= settings.timeLimitS * TIME_SHARE ? 'time-limit' : 'unproven',
      gap,
      proven,
      seconds,
      integers: table.options.length,
      simulated: table.simulated,
      impossible: done.impossible,
    },
    asked: settings,
    shortfall: done.shortfall,
    relief: done.shortfall === undefined ? undefined : await relief(context, done.shortfall),
  };
}

interface Done {
  outcome: GoalOutcome;
  /** undefined: even a plan without replicas breaks a condition. */
  counts: Counts | undefined;
  shortfall: Shortfall | undefined;
  impossible: boolean;
}

/**
 * Tries in this order: to meet the requirements; to serve all requests, but later than required; to maximize the share
 * of the worst served model.
 */
async function asPlanned(context: SolverContext, started: number, deadline: number): Promise<Done> {
  const { settings } = context;
  if (settings.objective === 'throughput') return shares(context, Number.POSITIVE_INFINITY, deadline, undefined, false);
  const until = started + (deadline - started) * REQUIREMENTS_SHARE;
  const goal =
    settings.objective === 'latency' ? ({ kind: 'latency', share: 1 } as const) : ({ kind: 'replicas' } as const);
  const serving = await anyServing(context, until);
  // If this plan meets the requirements, the remaining time is used for a better one. No time is needed for a plan that
  // falls short of the requirements.
  const certain = serving !== undefined && Number.isFinite(planValue(problemOf(context, goal), serving).value);
  const first = await new GoalSolver(context, goal, certain ? deadline : until).solve(serving);
  if (first.counts !== undefined && Number.isFinite(first.value))
    return trimmed(await closer(context, goal, first, deadline), undefined, false);
  const targets = context.targets.map(({ latencyS }) => ({ latencyS, asked: false }));
  const patient: SolverContext = { ...context, targets, settings: { ...settings, objective: 'latency' } };
  const tight = settings.objective !== 'latency' || context.targets.some(({ asked }) => asked);
  if (performance.now() > deadline) return inTime(patient, first);
  if (tight) {
    const second = await new GoalSolver(patient, { kind: 'latency', share: 1 }, deadline).solve();
    if (second.counts !== undefined && Number.isFinite(second.value))
      return trimmed(second, 'targets', first.impossible);
  }
  return shares(patient, 1, deadline, 'demand', first.impossible);
}

/** Uses the remaining time for a better plan, if there may be one. */
async function closer(context: SolverContext, goal: Goal, found: GoalOutcome, deadline: number): Promise<GoalOutcome> {
  const isClose = relativeGap(found.value, found.bound) <= context.settings.gap;
  if (isClose || performance.now() >= deadline) return found;
  const more = await new GoalSolver(context, goal, deadline).solve(found.counts);
  if (more.counts === undefined || !(more.value <= found.value)) return found;
  return { ...more, bound: Math.max(found.bound, more.bound) };
}

/** Share of a goal's time for a first plan that serves all requests. */
const SERVING_SHARE = 0.4;

/**
 * For many models and the objective `latency`: a first plan that serves all requests. Such a plan is found much sooner
 * than a plan with low latency.
 */
async function anyServing(context: SolverContext, deadline: number): Promise<Counts | undefined> {
  const { settings, targets } = context;
  if (settings.objective !== 'latency' || isSmall(context)) return undefined;
  const patient: SolverContext = {
    ...context,
    targets: targets.map((target) => (target.asked ? target : { latencyS: Number.POSITIVE_INFINITY, asked: false })),
    settings: { ...settings, objective: 'gpus', gap: 0.1 },
  };
  const until = performance.now() + (deadline - performance.now()) * SERVING_SHARE;
  return (await new GoalSolver(patient, { kind: 'replicas' }, until).solve()).counts;
}

/** The time is over without a plan that meets the requirements: fills the pools greedily with simulated replicas. */
function inTime(context: SolverContext, first: GoalOutcome): Done {
  const { table } = context;
  const problem = problemOf(context, { kind: 'share', most: 1 });
  const usable = problem.usable.map((one, o) => {
    const option = table.options[o];
    return option !== undefined && table.isExact(option, true) ? one : { rate: 0, curve: [] };
  });
  const search = new Search({ ...problem, usable }, context.floor);
  search.fill(performance.now() + GREEDY_MAX_MS);
  const { value, evaluation } = planValue(problem, search.counts);
  const outcome = { ...first, problem, counts: search.counts, value, bound: -1 };
  return {
    outcome,
    counts: search.counts,
    shortfall: evaluation.share >= 1 ? 'targets' : 'demand',
    impossible: first.impossible,
  };
}

const GREEDY_MAX_MS = 2_000;

/**
 * Removes replicas that hardly improve the objective. The removals may use half of the allowed gap; the solver uses the
 * other half.
 */
function trimmed(outcome: GoalOutcome, shortfall: Shortfall | undefined, impossible: boolean): Done {
  const { problem, counts = [] } = outcome;
  const search = new Search(problem, counts);
  search.trim((planValue(problem, counts).evaluation.waiting * problem.settings.gap) / 2);
  return { outcome, counts: search.counts, shortfall, impossible };
}

/**
 * Gives every model a replica if that is possible; then maximizes the share of the worst served model; then minimizes
 * waiting.
 */
async function shares(
  context: SolverContext,
  most: number,
  deadline: number,
  shortfall: Shortfall | undefined,
  impossible: boolean,
): Promise<Done> {
  const goal = { kind: 'share', most } as const;
  const until = performance.now() + (deadline - performance.now()) * REQUIREMENTS_SHARE;
  let outcome = await new GoalSolver(context, goal, until).solve();
  let inside = context;
  if (outcome.counts === undefined || outcome.value > -NOTHING) {
    inside = { ...context, demands: await placeable(context, until) };
    outcome = await new GoalSolver(inside, goal, until).solve();
  }
  const { counts } = outcome;
  if (counts === undefined || !Number.isFinite(outcome.value))
    return { outcome, counts: undefined, shortfall, impossible };
  const share = planValue(outcome.problem, counts).evaluation.share;
  if (most > 1) {
    const search = new Search(outcome.problem, counts);
    search.fill(performance.now() + 1e3);
    return { outcome, counts: search.counts, shortfall, impossible };
  }
  // The worst served model has its largest share. The remaining GPUs are for the other models and for shorter waits.
  const least = { kind: 'latency', share: Math.min(1, share) * (1 - 1e-6) } as const;
  const better = await new GoalSolver(inside, least, deadline).solve(counts);
  const kept =
    better.counts === undefined || !Number.isFinite(better.value)
      ? counts
      : trimmed(better, shortfall, impossible).counts;
  return { outcome, counts: kept, shortfall, impossible };
}

/** A share below this counts as zero. */
const NOTHING = 1e-9;

/** Returns the demands, with rate 0 for models that get no replica. As many models as possible get one. */
async function placeable(context: SolverContext, deadline: number): Promise<readonly Demand[]> {
  const outcome = await new GoalSolver(context, { kind: 'placed' }, deadline).solve();
  const placed = new Set<number>();
  context.table.options.forEach((option, o) => {
    if ((outcome.counts?.[o] ?? 0) > 0) placed.add(option.demand);
  });
  return context.demands.map((demand, m) => (placed.has(m) ? demand : { ...demand, rate: 0 }));
}
