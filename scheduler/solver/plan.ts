import { SchedulerError } from '../errors.ts';
import { evaluate } from './evaluate.ts';
import { type Formulation, formulate, type Problem } from './formulation.ts';
import { keep, whyInfeasible } from './given.ts';
import { type Solved, solve } from './highs.ts';
import { improve } from './neighbourhood.ts';
import { OptionTable } from './options.ts';
import { packs } from './packing.ts';
import type { Counts, Demand, Placement, PlanOptions, Pool } from './problem.ts';
import { Search } from './search.ts';

export interface SolveReport {
  /** highs: branch and cut to the gap; search: rounding, exchange and neighbourhoods under the linear bound. */
  method: 'highs' | 'search';
  /** optimal: within the gap that was asked for. unproven: the search ended, the bound is further away. */
  status: 'optimal' | 'time-limit' | 'unproven';
  /** How far the plan may be from the best one, relative; by proof. */
  gap: number;
  seconds: number;
  integers: number;
  /** Options whose estimate was replaced by a simulation. */
  simulated: number;
}

/** What was decided, before it is explained and simulated. */
export interface Decision {
  table: OptionTable;
  problem: Problem;
  formulation: Formulation;
  counts: Counts;
  relaxed: Solved;
  report: SolveReport;
  /** What was asked for. */
  asked: PlanOptions;
  /** Set where the demand cannot all be served: the plan is then for throughput. */
  overloaded: boolean;
  /** Where --latency is what cannot be kept: the least that can, seconds. */
  latencyS: number | undefined;
}

/** Above so many integers HiGHS hardly improves on the search within a minute: a few models at a time do better. */
const BRANCH_MAX = 400;

/** Each round simulates what the last solution used; estimates are mostly too good, so what is never chosen needs no simulation. */
const ROUNDS = 4;
const LINEAR_ROUNDS = 12;
/** Branching costs more than a round of the search; after these the last table stands. */
const BRANCH_ROUNDS = 3;

export async function decide(
  pools: readonly Pool[],
  demands: readonly Demand[],
  current: readonly Placement[],
  settings: PlanOptions,
): Promise<Decision> {
  const started = performance.now();
  const table = new OptionTable(demands, pools, settings);
  const floor = keep(table.options, demands, pools, current, settings);
  let problem: Problem = { options: table.options, demands, pools, floor, settings };
  let overloaded = false;
  let relaxed = await relaxation(problem);
  for (let round = 0; round < LINEAR_ROUNDS && remaining(settings, started) > settings.timeLimitS / 2; round++) {
    const fractions = relaxed.formulation.replicas.map((column) => relaxed.solved.values[column] ?? 0);
    if (!refine(table, problem, fractions)) break;
    relaxed = await relaxation(problem);
  }
  if (!serves(relaxed.formulation, relaxed.solved) && settings.objective !== 'throughput') {
    overloaded = true;
    problem = { ...problem, settings: { ...settings, objective: 'throughput' } };
    relaxed = await relaxation(problem);
  }
  let result = await searched(problem, relaxed.formulation, relaxed.solved);
  for (let round = 0; round < ROUNDS && remaining(settings, started) > 0; round++) {
    if (!refine(table, problem, result.counts)) break;
    relaxed = await relaxation(problem);
    result = await searched(problem, relaxed.formulation, relaxed.solved);
  }
  settings.progress?.(
    `${((performance.now() - started) / 1e3).toFixed(1)} s  rounding and search: within ${(result.report.gap * 100).toFixed(1)} % of the bound`,
  );
  const known = result;
  for (let round = 0; round < BRANCH_ROUNDS && remaining(settings, started) > 0; round++) {
    result = await branched(problem, relaxed.formulation, relaxed.solved, result, remaining(settings, started));
    if (!refine(table, problem, result.counts)) break;
    relaxed = await relaxation(problem);
    result = await rated(problem, relaxed.formulation, relaxed.solved, result);
  }
  // What branching preferred may have been the estimates' optimism: the last table decides between both.
  if (result !== known) {
    const again = await rated(problem, relaxed.formulation, relaxed.solved, known);
    if (again.report.gap < result.report.gap) result = again;
  }
  const short = evaluate(problem.options, result.counts, demands, problem.settings.objective).unserved.some(
    (rate) => rate > 0,
  );
  if (short && !overloaded && settings.objective !== 'throughput') overloaded = true;
  const seconds = (performance.now() - started) / 1e3;
  const within = result.report.gap <= settings.gap + 1e-9;
  const status = within ? 'optimal' : seconds >= settings.timeLimitS ? 'time-limit' : 'unproven';
  const report: SolveReport = { ...result.report, status, seconds, simulated: table.simulated };
  return {
    table,
    problem,
    formulation: relaxed.formulation,
    counts: result.counts,
    relaxed: relaxed.solved,
    report,
    asked: settings,
    overloaded,
    latencyS: overloaded ? await leastLatency({ ...problem, settings }) : undefined,
  };
}

/** The least latency limit under which the relaxation serves everybody, within a per cent; undefined if the limit is not what binds. */
async function leastLatency(problem: Problem): Promise<number | undefined> {
  const { settings } = problem;
  if (settings.latencyS === undefined) return undefined;
  const served = async (latencyS: number) => {
    const { formulation, solved } = await relaxation({ ...problem, settings: { ...settings, latencyS } });
    return serves(formulation, solved);
  };
  let [low, high] = [settings.latencyS, settings.latencyS * 1000];
  if (!(await served(high))) return undefined;
  for (let step = 0; step < 40 && high / low > 1.01; step++) {
    const middle = Math.sqrt(low * high);
    if (await served(middle)) high = middle;
    else low = middle;
  }
  return high;
}

async function relaxation(problem: Problem): Promise<{ formulation: Formulation; solved: Solved }> {
  const formulation = formulate(problem);
  const { settings } = problem;
  const solved = await solve(formulation.program, {
    timeLimitS: settings.timeLimitS,
    gap: 0,
    seed: settings.seed,
    relaxed: true,
  });
  if (solved.status === 'infeasible') throw new SchedulerError('infeasible', whyInfeasible(problem));
  if (solved.values.length === 0)
    throw new SchedulerError('solver', `no solution within ${settings.timeLimitS} s, not even of the relaxation`);
  return { formulation, solved };
}

/** Simulates the options with replicas in a solution. False when all were exact already. */
function refine(table: OptionTable, problem: Problem, counts: Counts): boolean {
  const wantLatency = problem.settings.objective !== 'throughput';
  let changed = false;
  problem.options.forEach((option, o) => {
    if ((counts[o] ?? 0) > 1e-6 && table.simulateOption(option, wantLatency)) changed = true;
  });
  return changed;
}

function serves(formulation: Formulation, solved: Solved): boolean {
  return formulation.unserved.every((column) => (solved.values[column] ?? 0) < 1e-6);
}

interface Found {
  counts: number[];
  report: SolveReport;
  /** By column of the formulation. */
  values: Float64Array;
}

const remaining = (settings: PlanOptions, started: number) => settings.timeLimitS - (performance.now() - started) / 1e3;

/** Rounds the relaxation down, fills and exchanges. */
async function searched(problem: Problem, formulation: Formulation, relaxed: Solved): Promise<Found> {
  const { settings, options, floor } = problem;
  const fraction = (o: number) => relaxed.values[formulation.replicas[o] ?? 0] ?? 0;
  const search = new Search(
    problem,
    options.map((_, o) => Math.max(floor[o] ?? 0, Math.floor(fraction(o) + 1e-6))),
  );
  search.fill();
  search.exchange(performance.now() + Math.min(settings.timeLimitS / 10, 5) * 1e3);
  const report: SolveReport = {
    method: 'search',
    status: 'optimal',
    gap: 0,
    seconds: 0,
    simulated: 0,
    integers: formulation.program.size.integers,
  };
  return rated(problem, formulation, relaxed, { counts: search.counts, report, values: relaxed.values });
}

/** The gap of known replicas under the current table. */
async function rated(problem: Problem, formulation: Formulation, relaxed: Solved, found: Found): Promise<Found> {
  const { values, objective } = await completed(problem, formulation, found.counts);
  return { ...found, values, report: { ...found.report, gap: gapOf(objective, relaxed.objective) } };
}

const gapOf = (objective: number, bound: number) =>
  Math.max(0, (objective - bound) / Math.max(1e-9, Math.abs(objective)));

/** Branch and cut from what is known, if that is not within the gap already. */
async function branched(
  problem: Problem,
  formulation: Formulation,
  relaxed: Solved,
  known: Found,
  timeLimitS: number,
): Promise<Found> {
  const { settings, options } = problem;
  if (known.report.gap <= settings.gap) return known;
  if (formulation.program.size.integers > BRANCH_MAX)
    return neighbourhoods(problem, formulation, relaxed, known, timeLimitS);
  const solved = await solve(formulation.program, {
    timeLimitS,
    gap: settings.gap,
    seed: settings.seed,
    start: [...known.values],
    incumbent: (objective, bound, seconds) =>
      settings.progress?.(
        `${seconds.toFixed(1)} s  plan of ${sense(problem, objective)}, bound ${sense(problem, Math.max(bound, relaxed.objective))}`,
      ),
  });
  const status = solved.status === 'optimal' ? 'optimal' : 'time-limit';
  if (solved.values.length === 0) return { ...known, report: { ...known.report, status } };
  const counts = options.map((_, o) => Math.round(solved.values[formulation.replicas[o] ?? 0] ?? 0));
  if (!packs(options, counts, problem.pools)) return { ...known, report: { ...known.report, status } };
  const gap = gapOf(solved.objective, Math.max(solved.bound, relaxed.objective));
  return { counts, values: solved.values, report: { ...known.report, method: 'highs', status, gap } };
}

/** A third of what is left, so that what it finds can be simulated and improved again. */
async function neighbourhoods(
  problem: Problem,
  formulation: Formulation,
  relaxed: Solved,
  known: Found,
  leftS: number,
): Promise<Found> {
  const { objective } = await completed(problem, formulation, known.counts);
  const better = await improve(
    problem,
    formulation,
    { counts: known.counts, values: known.values, objective },
    leftS / 3,
  );
  const gap = gapOf(better.objective, relaxed.objective);
  problem.settings.progress?.(
    `neighbourhoods: plan of ${sense(problem, better.objective)}, bound ${sense(problem, relaxed.objective)}`,
  );
  return { ...known, counts: better.counts, values: better.values, report: { ...known.report, gap } };
}

/** The rest of a solution, given its replicas: a linear program. */
async function completed(
  problem: Problem,
  formulation: Formulation,
  counts: Counts,
): Promise<{ values: Float64Array; objective: number }> {
  const fixed = formulate({ ...problem, floor: counts, settings: problem.settings });
  // A floor is not a ceiling: replicas beyond it would be a better plan than the one that is looked at.
  fixed.replicas.forEach((column, o) => void fixed.program.row(counts[o] ?? 0, counts[o] ?? 0, [[column, 1]]));
  const solved = await solve(fixed.program, { timeLimitS: 30, gap: 0, seed: problem.settings.seed, relaxed: true });
  if (solved.values.length === 0) throw new SchedulerError('solver', 'the search left a plan that breaks a constraint');
  return { values: solved.values.slice(0, formulation.program.size.columns), objective: solved.objective };
}

function sense(problem: Problem, objective: number): string {
  const rate = problem.demands.reduce((sum, demand) => sum + demand.rate, 0);
  switch (problem.settings.objective) {
    case 'throughput':
      return `${(-objective * 100).toFixed(2)} % of the demand`;
    case 'latency':
      return `${(objective / rate).toFixed(3)} s`;
    case 'cost':
      return `${objective.toFixed(2)} USD/h`;
  }
}
