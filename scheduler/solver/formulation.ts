import { LpProgram } from './highs.ts';
import type { UsableCapacity } from './latency-targets.ts';
import { packingRows } from './packing-constraints.ts';
import { type Counts, type Demand, type Option, type PlanOptions, type Pool, poolGpus } from './planning-problem.ts';

/** The objective of a program. */
export type Goal =
  /** Fewest GPUs or lowest cost, with every request served. */
  | { kind: 'replicas' }
  /**
   * Least waiting, while at least `share` of every model's requests is served. `share` is 1 if the whole demand can be
   * served.
   */
  | { kind: 'latency'; share: number }
  /** The largest share of its demand that every model reaches, up to `most`. */
  | { kind: 'share'; most: number }
  /** The most models with a replica, if not all models can have one. */
  | { kind: 'placed' };

export interface SolverProblem {
  options: readonly Option[];
  demands: readonly Demand[];
  pools: readonly Pool[];
  /** Minimum number of replicas of each option: those that must stay. */
  floor: readonly number[];
  settings: PlanOptions;
  /** The part of each option that a plan may use. */
  usable: readonly UsableCapacity[];
  goal: Goal;
}

/** The program of one planning problem, and the positions of its columns and rows. */
export interface Formulation {
  program: LpProgram;
  /** Column of the replicas of each option. */
  replicas: number[];
  /** Column of each model's unserved rate; only for the goal `latency`. */
  unserved: number[];
  /** Rows of each pool's packing conditions. One more GPU raises the limit of a row by `perGpu`. */
  packing: { pool: number; row: number; perGpu: number }[];
}

const INFINITY = Number.POSITIVE_INFINITY;

/**
 * Small bonus for each free GPU, in the unit of the objective and far below any gap, so that no GPU is used without
 * effect.
 */
const FREE_GPU_BONUS = 1e-7;
/**
 * Weight of a USD per hour if the number of GPUs is minimized: among plans with equally many GPUs, the cheapest wins.
 */
const USD_BESIDE_GPUS = 1e-4;
/**
 * The cost of all replicas together weighs at most this many GPUs in the objective. The value is below one half, so
 * that a bound may be rounded up to whole GPUs.
 */
const USD_AS_GPUS = 0.4;
/** Weight of a GPU if the cost is minimized: among plans of equal cost, the one with the fewest GPUs wins. */
const GPUS_BESIDE_USD = 1e-4;
/** An unserved request counts as this many seconds, more than any latency that a plan would accept. */
const UNSERVED_S = 1e5;

/** GPUs that a replica makes unavailable for other replicas. */
export function takenGpus(option: Option, pools: readonly Pool[]): number {
  const pool = pools[option.pool];
  return pool?.oneEngine === true ? pool.gpusPerNode : option.gpus;
}

export const usdPerHour = (option: Option, pools: readonly Pool[]): number =>
  takenGpus(option, pools) * (pools[option.pool]?.gpu.usdPerHour ?? 0);

/** Contribution of one replica to the objective `replicas`. */
export function replicaPrice(option: Option, { pools, settings }: Pick<SolverProblem, 'pools' | 'settings'>): number {
  const [gpus, usd] = [takenGpus(option, pools), usdPerHour(option, pools)];
  if (settings.objective === 'cost') return usd + GPUS_BESIDE_USD * gpus;
  const all = pools.reduce((sum, pool) => sum + poolGpus(pool) * pool.gpu.usdPerHour, 0);
  return gpus + Math.min(USD_BESIDE_GPUS, USD_AS_GPUS / Math.max(all, 1e-9)) * usd;
}

/** True if this model needs a replica on a stable node, and none of the replicas that stay is on one. */
export function needsStable({ options, pools, demands, floor }: SolverProblem, m: number): boolean {
  if (demands[m]?.alwaysOn !== true) return false;
  return !options.some((option, o) => option.demand === m && (floor[o] ?? 0) > 0 && isStable(option, pools));
}

export const isStable = (option: Option, pools: readonly Pool[]): boolean => pools[option.pool]?.tier !== 'volatile';

/**
 * The problem of OpenTela's paper (§5) as a mixed-integer linear program. Its integers are the replicas of each option.
 * For the goal `latency`, the rate of an option is a mixture of the loads on its convex curve, so that the
 * request-weighted mean latency (equation 1 of the paper) is exact, and the solution includes how requests are split
 * over replicas.
 */
export function formulate(problem: SolverProblem): Formulation {
  const { options, demands, pools, floor, settings, usable, goal } = problem;
  const program = new LpProgram();
  const replicas = options.map((option, o) => {
    const pool = pools[option.pool];
    // The column's bound is one more than fits, so that the pool's row binds before it. Otherwise the row's shadow
    // price would be zero.
    const fits = pool === undefined ? 0 : Math.floor(poolGpus(pool) / option.gpus) + 1;
    const most = (usable[o]?.rate ?? 0) > 0 || goal.kind === 'placed' ? fits : 0;
    const price = goal.kind === 'replicas' ? replicaPrice(option, problem) : FREE_GPU_BONUS * option.gpus;
    return program.column(price, floor[o] ?? 0, Math.max(most, floor[o] ?? 0), true);
  });
  const packing = packingRows(options, pools).map(({ pool, limit, perGpu, terms }) => ({
    pool,
    perGpu,
    row: program.row(
      -INFINITY,
      limit,
      terms.map(({ option, factor }) => [replicas[option] ?? 0, factor] as const),
    ),
  }));
  if (settings.budget !== undefined) {
    const usd = options.map((option, o) => [replicas[o] ?? 0, usdPerHour(option, pools)] as const);
    program.row(-INFINITY, settings.budget, usd);
  }
  const of = (m: number, factor: (option: Option, o: number) => number) =>
    options.flatMap((option, o) => (option.demand === m ? [[replicas[o] ?? 0, factor(option, o)] as const] : []));
  demands.forEach((_, m) => {
    if (!needsStable(problem, m)) return;
    program.row(
      1,
      INFINITY,
      of(m, (option) => (isStable(option, pools) ? 1 : 0)),
    );
  });
  const rows = { program, problem, replicas, of };
  const unserved = goal.kind === 'latency' ? waiting(rows, goal.share) : [];
  if (goal.kind === 'replicas') {
    demands.forEach(({ rate }, m) => {
      if (rate > 0)
        program.row(
          1,
          INFINITY,
          of(m, (_, o) => (usable[o]?.rate ?? 0) / rate),
        );
    });
  }
  if (goal.kind === 'share') share(rows, goal.most);
  if (goal.kind === 'placed') placed(rows);
  return { program, replicas, unserved, packing };
}

interface Rows {
  program: LpProgram;
  problem: SolverProblem;
  replicas: readonly number[];
  of(m: number, factor: (option: Option, o: number) => number): (readonly [number, number])[];
}

/** Returns the columns of unserved rates. */
function waiting({ program, problem, replicas }: Rows, share: number): number[] {
  const { options, demands, usable } = problem;
  const unserved = demands.map(({ rate }) => program.column(UNSERVED_S, 0, Math.max(0, (1 - share) * rate)));
  const served: (readonly [number, number])[][] = demands.map((_, m) => [[unserved[m] ?? 0, 1]]);
  options.forEach((option, o) => {
    const mixture: (readonly [number, number])[] = [[replicas[o] ?? 0, -1]];
    for (const { rate, latencyS } of usable[o]?.curve ?? []) {
      if (rate <= 0) continue;
      const loaded = program.column(rate * latencyS, 0, INFINITY);
      mixture.push([loaded, 1]);
      served[option.demand]?.push([loaded, rate]);
    }
    if (mixture.length > 1) program.row(-INFINITY, 0, mixture);
  });
  demands.forEach(({ rate }, m) => {
    program.row(rate, rate, served[m] ?? []);
  });
  return unserved;
}

function share({ program, problem, of }: Rows, most: number): void {
  const { demands, usable } = problem;
  const z = program.column(-1, 0, most);
  demands.forEach(({ rate }, m) => {
    if (rate <= 0) return;
    program.row(0, INFINITY, [...of(m, (_, o) => (usable[o]?.rate ?? 0) / rate), [z, -1]]);
  });
}

function placed({ program, problem, of }: Rows): void {
  const { demands } = problem;
  const total = demands.reduce((sum, { rate }) => sum + rate, 0);
  demands.forEach(({ rate }, m) => {
    if (rate <= 0) return;
    // If not all models can be placed, models with high demand are preferred among solutions with equally many models.
    const has = program.column(-1 - (1e-3 * rate) / total, 0, 1, true);
    program.row(0, INFINITY, [...of(m, () => 1), [has, -1]]);
  });
}

/** Objective value of given replicas, in the program's unit; Infinity if they break a condition of the goal. */
export function objectiveOf(
  problem: SolverProblem,
  counts: Counts,
  evaluation: { waiting: number; unserved: readonly number[]; share: number },
): number {
  const { options, goal, demands } = problem;
  const sum = (of: (option: Option) => number) =>
    options.reduce((all, option, o) => all + (counts[o] ?? 0) * of(option), 0);
  switch (goal.kind) {
    case 'replicas':
      return evaluation.unserved.some((rate) => rate > 0) ? INFINITY : sum((option) => replicaPrice(option, problem));
    case 'latency': {
      const left = evaluation.unserved.reduce((all, rate) => all + rate, 0);
      const short = evaluation.unserved.some((rate, m) => rate > (1 - goal.share + 1e-6) * (demands[m]?.rate ?? 0));
      return short ? INFINITY : evaluation.waiting + UNSERVED_S * left + sum((option) => FREE_GPU_BONUS * option.gpus);
    }
    case 'share':
      return -Math.min(goal.most, evaluation.share) + sum((option) => FREE_GPU_BONUS * option.gpus);
    case 'placed':
      return 0;
  }
}
