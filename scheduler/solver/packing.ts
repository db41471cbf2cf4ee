import { type Counts, type Option, type Pool, poolGpus } from './problem.ts';

/** A linear condition on one pool: sum of factor * replicas <= limit. */
export interface PackingRow {
  pool: number;
  limit: number;
  /** Adds to `limit` when the pool gets one more GPU. */
  perGpu: number;
  terms: { option: number; factor: number }[];
}

/**
 * Replicas do not span nodes. Where parallelisms divide one another, as powers of two do, it is enough that for each t the replicas of t
 * and more GPUs fit the blocks of t GPUs that the nodes have; for others (3 beside 4) these conditions are necessary and `packs` decides.
 */
export function packingRows(options: readonly Option[], pools: readonly Pool[]): PackingRow[] {
  return pools.flatMap((pool, p) => {
    const here = options.map((option, index) => ({ option, index })).filter(({ option }) => option.pool === p);
    const sizes = [...new Set([1, ...here.map(({ option }) => option.tp)])].sort((a, b) => a - b);
    return sizes
      .map((size) => ({
        pool: p,
        limit: size === 1 ? poolGpus(pool) : pool.nodes * Math.floor(pool.gpusPerNode / size),
        perGpu: 1 / size,
        terms: here
          .filter(({ option }) => option.tp >= size)
          .map(({ option, index }) => ({ option: index, factor: Math.floor(option.tp / size) })),
      }))
      .filter(
        ({ terms, limit }, i) =>
          terms.length > 0 && (i === 0 || limit * (sizes[i] ?? 1) < poolGpus(pool) || !divides(sizes, sizes[i] ?? 1)),
      );
  });
}

/** With sizes that divide one another and a node, the row for all GPUs says everything. */
const divides = (sizes: readonly number[], size: number) =>
  sizes.every((other) => Math.max(size, other) % Math.min(size, other) === 0);

/** Whether the replicas fit the nodes: largest first, into the first node with room. Exact where sizes divide one another. */
export function packs(options: readonly Option[], counts: Counts, pools: readonly Pool[]): boolean {
  return pools.every((pool, p) => {
    const free = new Array<number>(pool.nodes).fill(pool.gpusPerNode);
    const sizes = options
      .flatMap((option, o) => (option.pool === p ? new Array<number>(counts[o] ?? 0).fill(option.tp) : []))
      .sort((a, b) => b - a);
    return sizes.every((size) => {
      const node = free.findIndex((left) => left >= size);
      if (node < 0) return false;
      free[node] = (free[node] ?? 0) - size;
      return true;
    });
  });
}
