import type { Demand, Pool } from '../solver/problem.ts';

/** Share of the time that a node is there, where the inventory does not say. */
const TIER_AVAILABILITY = { stable: 0.999, volatile: 0.9 } as const;

/** Share of the time that one node of a pool is there, 0 to 1. */
const nodeAvailability = (pool: Pool): number => pool.availability ?? TIER_AVAILABILITY[pool.tier ?? 'stable'];

/**
 * Share of the time that at least one replica of a model is there, if nodes fail one by one. Replicas that can share a node are taken to
 * share it.
 */
export function modelAvailability(
  demand: Demand,
  placements: readonly { model: string; pool: string; gpus: number; replicas: number }[],
  pools: readonly Pool[],
): number {
  let allGone = 1;
  for (const pool of pools) {
    const gpus = placements.reduce(
      (sum, one) =>
        one.model === demand.model.id && one.pool === pool.id
          ? sum + one.replicas * (pool.oneEngine === true ? pool.gpusPerNode : one.gpus)
          : sum,
      0,
    );
    allGone *= (1 - nodeAvailability(pool)) ** Math.ceil(gpus / pool.gpusPerNode);
  }
  return 1 - allGone;
}
