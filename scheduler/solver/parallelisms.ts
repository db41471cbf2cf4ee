import { tpProblem } from '../roofline/parallelism.ts';
import type { Demand, Pool } from './planning-problem.ts';

/** Usual tensor parallelisms of engines. */
export const PARALLELISMS = [1, 2, 4, 8];

/**
 * A replica must hold at least this many sequences of mean length (condition C2 of OpenTela's paper): with only one,
 * every request would wait for the previous one.
 */
export const SEQUENCES_MIN = 2;

/** Returns the tensor parallelisms that the model and the nodes of a pool allow. */
export function parallelisms(demand: Demand, pool: Pool): number[] {
  return (demand.tp ?? PARALLELISMS).filter(
    (tp) =>
      tp <= pool.gpusPerNode &&
      tpProblem(demand.model, tp) === undefined &&
      (pool.allows?.(demand.model.id, { tp }) ?? true),
  );
}
