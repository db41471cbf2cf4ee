/**
 * Candidate layouts: for the demand of each slot ahead, the layout with the fewest changes that leaves headroom, and
 * other layouts on the same GPUs.
 */
import { LpProgram, type LpSolution, loadSolver, type Solve } from '../solver/highs.ts';
import { alternativeLayouts } from './alternative-layouts.ts';
import { type FollowProblem, type Layout, layoutKey, optionsOf, TRACE_DEMAND } from './follow-problem.ts';

/** If replicas have capacity to spare, a layout fills them at most to this share, because requests queue above it. */
const TARGET_LOAD = 0.75;
/**
 * If replicas have no capacity to spare, a layout may serve slightly less than the best layout: at least this multiple
 * of the share of the demand that the best one serves. In return it needs fewer changes.
 */
const NEAR_BEST = 0.99;
const SOLVER = { timeLimitS: 5, gap: 1e-4, seed: 1 };

/**
 * Returns first one layout per distinct demand. The demands are the expected demand of each slot, and the highest upper end
 * of the forecast over all slots. Empty if no layout fits.
 */
export async function candidateLayouts(problem: FollowProblem): Promise<Layout[]> {
  return candidateLayoutsBy(await loadSolver(), problem);
}

/** The same with a solver that is loaded. */
export function candidateLayoutsBy(solve: Solve, problem: FollowProblem): Layout[] {
  const steps = Math.max(0, ...problem.models.map(({ mean }) => mean.length));
  const demands: Demands[] = Array.from({ length: steps }, (_, step) =>
    problem.models.map(({ mean }) => mean[step] ?? mean.at(-1) ?? []),
  );
  demands.push(
    problem.models.map(({ high }) => (high[0] ?? []).map((_, kind) => Math.max(...high.map((row) => row[kind] ?? 0)))),
  );
  const found = distinct(demands.map((demand) => layoutFor(solve, problem, demand)).filter((one) => one !== undefined));
  return distinct([...found, ...alternativeLayouts(problem, found)]);
}

/** Each layout once, in the order given. */
function distinct(layouts: readonly Layout[]): Layout[] {
  const byKey = new Map<string, Layout>();
  for (const layout of layouts) if (!byKey.has(layoutKey(layout))) byKey.set(layoutKey(layout), layout);
  return [...byKey.values()];
}

/** Requests/s, as `[model][kind]`. */
type Demands = readonly (readonly number[])[];

function layoutFor(solve: Solve, problem: FollowProblem, demand: Demands): Layout | undefined {
  const largest = programOf(problem, demand);
  const best = solve(largest.program, SOLVER);
  const share = best.values[largest.share] ?? 0;
  if (best.status === 'infeasible' || !(share > 0)) return undefined;
  const least = Math.min(1 / TARGET_LOAD, share * NEAR_BEST);
  const fewest = programOf(problem, demand, least);
  const solved = solve(fewest.program, SOLVER);
  const layout = layoutIn(solved, fewest.replicas) ?? layoutIn(best, largest.replicas);
  return layout;
}

const layoutIn = ({ status, values }: LpSolution, replicas: readonly number[]): Layout | undefined =>
  status === 'infeasible' || values.length === 0
    ? undefined
    : replicas.map((column) => Math.round(values[column] ?? 0));

/**
 * Maximizes z, where z times the demand of every kind is served. With `least`, z is at least `least` and the starts and
 * ends of replicas are minimized. A node runs one engine, so replicas are integers.
 */
function programOf({ options, pools, models, running }: FollowProblem, demand: Demands, least?: number) {
  const program = new LpProgram();
  const share = program.column(least === undefined ? -1 : 0, least ?? 0, least ?? 1e6);
  const pinOf = (model: string) => models.find((one) => one.model === model)?.pin;
  const replicas = options.map(({ place, gpus, fixed }, i) => {
    const pin = fixed ? running[i] : pinOf(place.model)?.[i];
    const pool = pools.find(({ id }) => id === place.pool);
    const most = Math.min(pool?.replicas ?? 0, Math.floor((pool?.gpus ?? 0) / Math.max(1, gpus)));
    return program.column(0, pin ?? 0, pin ?? most, true);
  });
  for (const { id, gpus, replicas: most } of pools) {
    const own = options.flatMap(({ place }, i) => (place.pool === id ? [i] : []));
    program.row(
      0,
      most,
      own.map((i): [number, number] => [replicas[i] ?? 0, 1]),
    );
    program.row(
      0,
      gpus,
      own.map((i): [number, number] => [replicas[i] ?? 0, options[i]?.gpus ?? 0]),
    );
  }
  for (const [m, { model, kinds, pin }] of models.entries()) {
    // The replicas of a pinned model cannot change, so its demand must not lower z for the others.
    if (pin !== undefined) continue;
    const wanted = demand[m] ?? [];
    const trace = TRACE_DEMAND * wanted.reduce((sum, one) => sum + one, 0);
    const own = optionsOf({ options }, model);
    const flows = own.map((i) => {
      const terms: [number, number][] = [[replicas[i] ?? 0, -1]];
      const flow = kinds.map((_, kind) => {
        const rate = options[i]?.rates[kind] ?? 0;
        const column = program.column(0, 0, rate > 0 ? Number.POSITIVE_INFINITY : 0);
        if (rate > 0) terms.push([column, 1 / rate]);
        return column;
      });
      program.row(Number.NEGATIVE_INFINITY, 0, terms);
      return flow;
    });
    for (const kind of kinds.keys()) {
      const rate = Math.max(wanted[kind] ?? 0, trace);
      if (!(rate > 0) || !own.some((i) => (options[i]?.rates[kind] ?? 0) > 0)) continue;
      program.row(0, Number.POSITIVE_INFINITY, [
        ...flows.map((flow): [number, number] => [flow[kind] ?? 0, 1]),
        [share, -rate],
      ]);
    }
  }
  if (least !== undefined) minimizeChanges(program, replicas, running);
  return { program, share, replicas };
}

function minimizeChanges(program: LpProgram, replicas: readonly number[], running: readonly number[]): void {
  for (const [i, column] of replicas.entries()) {
    const change = program.column(1, 0, Number.POSITIVE_INFINITY);
    program.row(running[i] ?? 0, Number.POSITIVE_INFINITY, [
      [change, 1],
      [column, 1],
    ]);
    program.row(-(running[i] ?? 0), Number.POSITIVE_INFINITY, [
      [change, 1],
      [column, -1],
    ]);
  }
}
