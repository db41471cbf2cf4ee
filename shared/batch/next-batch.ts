import type { NodeContexts } from './function-context.ts';
import { contextWarmth } from './function-context.ts';

/** A batch that has open lines. */
export interface QueuedBatch {
  id: string;
  project: string;
  expiresMs: number;
  /** Number of open lines in chunks that are not leased to a node. */
  waiting: number;
  /** Number of lines that nodes are running. */
  leased: number;
  /** Finished lines per second over the last minute; 0 if none. */
  linesPerS: number;
  /** For a batch of a function: the context that a node must load to run its lines. */
  context?: string;
  /** True if a chunk is late at its node, so that another node may run it. */
  late?: boolean;
}

/**
 * A batch is in danger if the expected remaining time, multiplied by this margin, is longer than the time to its
 * deadline.
 */
const MARGIN = 1.25;

/**
 * Chooses the batch for the next lease. First come batches in danger of missing their deadline, earliest deadline
 * first. Then comes the project with the fewest lines at nodes, and in it the batch with the earliest deadline. Equal
 * batches are ordered by id, so that every caller chooses the same.
 */
export function nextBatch(batches: readonly QueuedBatch[], nowMs: number): QueuedBatch | undefined {
  const leasedBy = new Map<string, number>();
  for (const { project, leased } of batches) leasedBy.set(project, (leasedBy.get(project) ?? 0) + leased);
  const wanting = batches.filter(({ waiting }) => waiting > 0);
  const rank = (batch: QueuedBatch): [number, number, number] =>
    inDanger(batch, nowMs) ? [0, batch.expiresMs, 0] : [1, leasedBy.get(batch.project) ?? 0, batch.expiresMs];
  return wanting.reduce<QueuedBatch | undefined>((best, one) => {
    if (best === undefined) return one;
    const [a, b] = [rank(one), rank(best)];
    const order = a[0] - b[0] || a[1] - b[1] || a[2] - b[2] || (one.id < best.id ? -1 : 1);
    return order < 0 ? one : best;
  }, undefined);
}

function inDanger({ expiresMs, waiting, leased, linesPerS }: QueuedBatch, nowMs: number): boolean {
  if (linesPerS <= 0) return false;
  return ((waiting + leased) / linesPerS) * 1_000 * MARGIN > expiresMs - nowMs;
}

/**
 * If no node has run a function's batch for this long, the batch goes before batches with warm contexts. Otherwise a
 * node would never change its function.
 */
export const STARVED_AFTER_MS = 60_000;

/**
 * The next batch for a node that runs functions: a batch that is starved or in danger of missing its deadline,
 * otherwise of the projects with the fewest nodes the batch with the warmest context.
 * @param servedMs returns when a node last took lines of this batch, or when a node first could have
 * @param nodesOf returns the number of other nodes that run functions of a project
 */
export function nextFunctionBatch(
  batches: readonly QueuedBatch[],
  held: NodeContexts,
  nowMs: number,
  servedMs: (id: string) => number,
  nodesOf: (project: string) => number = () => 0,
): QueuedBatch | undefined {
  const fit = batches.filter(({ context }) => context !== undefined && !held.broken.includes(context));
  const wanting = fit.filter(({ waiting }) => waiting > 0);
  const urgent = wanting.filter((one) => inDanger(one, nowMs) || nowMs - servedMs(one.id) >= STARVED_AFTER_MS);
  if (urgent.length > 0) return nextBatch(urgent, nowMs);
  const fewest = Math.min(...wanting.map(({ project }) => nodesOf(project)));
  const fair = wanting.filter(({ project }) => nodesOf(project) === fewest);
  for (const warmth of ['ready', 'loading', 'stored', 'cold'] as const) {
    const found = nextBatch(
      fair.filter(({ context = '' }) => contextWarmth(context, held) === warmth),
      nowMs,
    );
    if (found !== undefined) return found;
  }
  return undefined;
}
