import { parameters } from '../catalogue/model.ts';
import { SchedulerError } from '../errors.ts';
import { LpProgram, solve } from './highs.ts';
import { packingRows } from './packing-constraints.ts';
import { type Counts, type Demand, type Option, type Pool, poolGpus } from './planning-problem.ts';

const INFINITY = Number.POSITIVE_INFINITY;

/**
 * The baseline memP of OpenTela's paper: GPUs in proportion to rate * parameters, regardless of the kind of GPU; each
 * model at the lowest parallelism that fits.
 */
export function memoryProportional(
  options: readonly Option[],
  demands: readonly Demand[],
  pools: readonly Pool[],
): Promise<Counts> {
  const weights = demands.map((demand) => demand.rate * parameters(demand.model));
  return nearestShares(options, demands, pools, weights, false);
}

/** Gives every model the same number of GPUs of each kind. */
export function equalSplit(
  options: readonly Option[],
  demands: readonly Demand[],
  pools: readonly Pool[],
): Promise<Counts> {
  return nearestShares(
    options,
    demands,
    pools,
    demands.map(() => 1),
    true,
  );
}

/**
 * Makes the GPUs of each model as equal as possible to its share by `weights`: minimizes the sum of absolute
 * differences, by pool or over all pools. Every model that fits somewhere gets a replica.
 */
async function nearestShares(
  options: readonly Option[],
  demands: readonly Demand[],
  pools: readonly Pool[],
  weights: readonly number[],
  byPool: boolean,
): Promise<Counts> {
  const program = new LpProgram();
  const least = (option: Option) =>
    options.every((other) => other.demand !== option.demand || other.pool !== option.pool || other.tp >= option.tp);
  const columns = options.map((option) =>
    program.column(-NO_IDLE * option.tp, 0, least(option) ? gpusOf(pools[option.pool]) : 0, true),
  );
  for (const { limit, terms } of packingRows(options, pools)) {
    program.row(
      -INFINITY,
      limit,
      terms.map(({ option, factor }) => [columns[option] ?? 0, factor] as const),
    );
  }
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const groups = byPool ? pools.map((_, p) => [p]) : [pools.map((_, p) => p)];
  demands.forEach((_, m) => {
    const mine = options.flatMap((option, o) => (option.demand === m ? [[columns[o] ?? 0, 1] as const] : []));
    program.row(Math.min(1, mine.length), INFINITY, mine);
    for (const group of groups) {
      const gpus = group.reduce((sum, p) => sum + gpusOf(pools[p]), 0);
      const due = (gpus * (weights[m] ?? 0)) / Math.max(total, 1e-9);
      const given = options.flatMap((option, o) =>
        option.demand === m && group.includes(option.pool) ? [[columns[o] ?? 0, option.tp] as const] : [],
      );
      const off = program.column(1, 0, INFINITY);
      program.row(-INFINITY, due, [...given, [off, -1]]);
      program.row(due, INFINITY, [...given, [off, 1]]);
    }
  });
  const solved = await solve(program, { timeLimitS: 10, gap: 1e-3, seed: 1 });
  if (solved.values.length === 0)
    throw new SchedulerError(
      'infeasible',
      'there are fewer nodes than models, so no baseline gives each model a replica',
    );
  return columns.map((column) => Math.round(solved.values[column] ?? 0));
}

/**
 * Bonus for each assigned GPU. It exceeds 1, the most that one more GPU adds to the sum of differences. So no GPU stays
 * idle that a model could use, as in the search of OpenTela's paper.
 */
const NO_IDLE = 1.01;

const gpusOf = (pool: Pool | undefined) => (pool === undefined ? 0 : poolGpus(pool));
