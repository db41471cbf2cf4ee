import { dominated } from './dominated.ts';
import { usablePoints } from './evaluate.ts';
import { Program } from './highs.ts';
import { packingRows } from './packing.ts';
import { type Demand, type Objective, type Option, type PlanOptions, type Pool, poolGpus } from './problem.ts';

/** The program of one planning problem, and where things are in it. */
export interface Formulation {
  program: Program;
  objective: Objective;
  /** Column of the replicas of each option. */
  replicas: number[];
  /** Column of each model's unserved rate; latency and cost. */
  unserved: number[];
  /** Column of the served share; throughput. */
  z: number | undefined;
  /** Rows of each pool's packing conditions, with how much one more GPU adds to their limit. */
  packing: { pool: number; row: number; perGpu: number }[];
  /** What a request/s that nobody serves costs, in the objective's unit. */
  penalty: number;
}

export interface Problem {
  options: readonly Option[];
  demands: readonly Demand[];
  pools: readonly Pool[];
  /** Replicas that stay, by option. */
  floor: readonly number[];
  settings: PlanOptions;
}

const INFINITY = Number.POSITIVE_INFINITY;

/** Keeps GPUs free that would not help anybody: in the objective's own unit, far below any gap. */
const TIDY = 1e-7;

/**
 * Paper §5, as a mixed-integer linear program. Integers: replicas of each option. Their rate is a mixture of the loads on the option's
 * convex curve, so that request-weighted mean latency (paper, eq. 1) is exact and the split over replicas comes with it.
 *
 *     latency:     min sum rate*latency(rate) + penalty*unserved
 *     throughput:  max z,  capacity of each model >= z * its rate        (paper, Table 1)
 *     cost:        min USD/h + penalty*unserved, each model's mean latency at most L
 */
export function formulate(problem: Problem): Formulation {
  const { options, demands, pools, floor, settings } = problem;
  const program = new Program();
  const useless = dominated(options, pools, settings);
  const replicas = options.map((option, o) => {
    const pool = pools[option.pool];
    // One more than fits: the pool's row must bind, not this bound, or the row's shadow price says that a GPU is worth nothing.
    const most = pool === undefined || useless[o] === true ? 0 : Math.floor(poolGpus(pool) / option.tp) + 1;
    const usd = settings.objective === 'cost' ? (pool?.gpu.usdPerHour ?? 0) * option.tp : 0;
    return program.column(usd + TIDY * option.tp, floor[o] ?? 0, Math.max(most, floor[o] ?? 0), true);
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
    const usd = options.map(
      (option, o) => [replicas[o] ?? 0, (pools[option.pool]?.gpu.usdPerHour ?? 0) * option.tp] as const,
    );
    program.row(-INFINITY, settings.budget, usd);
  }
  const base = { program, objective: settings.objective, replicas, packing };
  if (settings.objective === 'throughput')
    return { ...base, unserved: [], z: overload(program, options, demands, replicas), penalty: 0 };
  const penalty = unservedPenalty(problem);
  const unserved = demands.map((demand) => program.column(penalty, 0, demand.rate));
  serve(program, problem, replicas, unserved);
  return { ...base, unserved, z: undefined, penalty };
}

/** Above what any served request can cost, so that nobody is left out to please the rest. */
function unservedPenalty({ options, pools, settings }: Problem): number {
  if (settings.objective === 'cost') {
    const dearest = options.map(
      (option) => ((pools[option.pool]?.gpu.usdPerHour ?? 0) * option.tp) / Math.max(option.capacity, 1e-9),
    );
    return 100 * Math.max(1, ...dearest);
  }
  return 10 * Math.max(1, ...options.map(({ points }) => points.at(-1)?.latencyS ?? 0));
}

function serve(program: Program, problem: Problem, replicas: readonly number[], unserved: readonly number[]): void {
  const { options, demands, settings } = problem;
  const served: (readonly [number, number])[][] = demands.map((_, m) => [[unserved[m] ?? 0, 1]]);
  const waited: (readonly [number, number])[][] = demands.map(() => []);
  options.forEach((option, o) => {
    const mixture: (readonly [number, number])[] = [[replicas[o] ?? 0, -1]];
    for (const { rate, latencyS } of usablePoints(option, settings.objective).slice(1)) {
      const share = program.column(settings.objective === 'latency' ? rate * latencyS : 0, 0, INFINITY);
      mixture.push([share, 1]);
      served[option.demand]?.push([share, rate]);
      waited[option.demand]?.push([share, rate * latencyS]);
    }
    program.row(-INFINITY, 0, mixture);
  });
  demands.forEach((demand, m) => {
    program.row(demand.rate, demand.rate, served[m] ?? []);
    if (settings.latencyS !== undefined) program.row(-INFINITY, settings.latencyS * demand.rate, waited[m] ?? []);
  });
}

/** So much less than z do the other models' shares count: they only break ties. */
const TIE_BREAK = 1e-3;

function overload(
  program: Program,
  options: readonly Option[],
  demands: readonly Demand[],
  replicas: readonly number[],
): number {
  const z = program.column(-1, 0, INFINITY);
  demands.forEach((demand, m) => {
    if (demand.rate <= 0) return;
    const share = program.column(-TIE_BREAK / demands.length, 0, INFINITY);
    const capacity = options.flatMap((option, o) =>
      option.demand === m ? [[replicas[o] ?? 0, option.capacity / demand.rate] as const] : [],
    );
    program.row(0, INFINITY, [...capacity, [share, -1]]);
    program.row(0, INFINITY, [
      [share, 1],
      [z, -1],
    ]);
  });
  return z;
}
