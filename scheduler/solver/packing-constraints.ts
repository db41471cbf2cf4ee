import { type Counts, type Option, type Pool, poolGpus } from './planning-problem.ts';

/** A linear condition on one pool: sum of factor * replicas <= limit. */
interface PackingRow {
  pool: number;
  limit: number;
  /** Increase of `limit` if the pool gets one more GPU. */
  perGpu: number;
  terms: { option: number; factor: number }[];
}

/**
 * Replicas do not span nodes. For each t, the replicas on t or more GPUs must fit the nodes' blocks of t GPUs. If the
 * sizes of replicas divide one another, as powers of two do, these conditions are sufficient. For other sizes, such as
 * 3 and 4, they are only necessary, and `packs` decides whether the replicas fit.
 */
export function packingRows(options: readonly Option[], pools: readonly Pool[]): PackingRow[] {
  return pools.flatMap((pool, p) => {
    const here = options.map((option, index) => ({ option, index })).filter(({ option }) => option.pool === p);
    if (pool.oneEngine) {
      const terms = here.map(({ index }) => ({ option: index, factor: 1 }));
      return terms.length === 0 ? [] : [{ pool: p, limit: pool.nodes, perGpu: 1 / pool.gpusPerNode, terms }];
    }
    const sizes = [...new Set([1, ...here.map(({ option }) => option.gpus)])].sort((a, b) => a - b);
    return sizes
      .map((size) => ({
        pool: p,
        limit: size === 1 ? poolGpus(pool) : pool.nodes * Math.floor(pool.gpusPerNode / size),
        perGpu: 1 / size,
        terms: here
          .filter(({ option }) => option.gpus >= size)
          .map(({ option, index }) => ({ option: index, factor: Math.floor(option.gpus / size) })),
      }))
      .filter(
        ({ terms, limit }, i) =>
          terms.length > 0 && (i === 0 || limit * (sizes[i] ?? 1) < poolGpus(pool) || !divides(sizes, sizes[i] ?? 1)),
      );
  });
}

/**
 * True if all sizes divide this size or are multiples of it. Then the row for all GPUs includes the condition of this
 * size, if the size also divides the node.
 */
const divides = (sizes: readonly number[], size: number) =>
  sizes.every((other) => Math.max(size, other) % Math.min(size, other) === 0);

/**
 * True if greedy placement fits the replicas into the nodes. For sizes that do not divide one another, it may miss a
 * placement.
 */
export function packs(options: readonly Option[], counts: Counts, pools: readonly Pool[]): boolean {
  return pools.every((pool, p) => {
    const sizes = new Map<number, number>();
    options.forEach((option, o) => {
      if (option.pool === p) sizes.set(option.gpus, (sizes.get(option.gpus) ?? 0) + (counts[o] ?? 0));
    });
    return packsInto(sizes, pool);
  });
}

/**
 * `sizes`: number of replicas by GPUs per replica. Places the largest first, each into the fullest node with enough
 * free GPUs. Nodes are counted by their number of free GPUs, so that the time depends on the size of a node, not on the
 * number of replicas.
 */
export function packsInto(
  sizes: ReadonlyMap<number, number>,
  { nodes, gpusPerNode, oneEngine }: Pick<Pool, 'nodes' | 'gpusPerNode' | 'oneEngine'>,
): boolean {
  if (oneEngine) return [...sizes.values()].reduce((sum, replicas) => sum + replicas, 0) <= nodes;
  const withFree = new Array<number>(gpusPerNode + 1).fill(0);
  withFree[gpusPerNode] = nodes;
  for (const [size, replicas] of [...sizes].sort((a, b) => b[0] - a[0])) {
    let left = replicas;
    for (let free = size; free <= gpusPerNode && left > 0; free++) {
      const here = withFree[free] ?? 0;
      // After a node took a replica, it would count among the fuller nodes, which this loop has already passed. So a
      // node gets all replicas of this size that fit at this step.
      const each = Math.floor(free / size);
      const filled = Math.min(here, Math.floor(left / each));
      withFree[free] = here - filled;
      const rest = free - each * size;
      withFree[rest] = (withFree[rest] ?? 0) + filled;
      left -= filled * each;
      if (left > 0 && left < each && (withFree[free] ?? 0) > 0) {
        withFree[free] = (withFree[free] ?? 0) - 1;
        withFree[free - left * size] = (withFree[free - left * size] ?? 0) + 1;
        left = 0;
      }
    }
    if (left > 0) return false;
  }
  return true;
}
