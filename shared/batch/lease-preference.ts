/**
 * Decides which of several nodes gets a waiting line: the one whose context is nearest to ready, and among equals a
 * volatile one.
 */
import type { ContextWarmth } from './function-context.ts';

const WARMTH: Record<ContextWarmth, number> = { ready: 0, loading: 1, stored: 2, cold: 3 };
/**
 * Each rank is told about a waiting line this much later than the one before. A node that is told requests the line
 * within this time.
 */
const RANK_MS = 150;
/** A stable node's request is delayed this much if volatile nodes serve its model, so that it gets what they leave. */
const STABLE_MS = 500;

export type NodeTier = 'stable' | 'volatile';

/**
 * Rank 0 is told first. Warmth counts more than tier: a stable node that is ready starts immediately, a volatile one
 * may load for minutes.
 */
export function leaseRank(warmth: ContextWarmth, tier: NodeTier): number {
  return 2 * WARMTH[warmth] + (tier === 'stable' ? 1 : 0);
}

/** Delay after which nodes of this rank are told about a waiting line, in milliseconds. */
export function offerDelayMs(rank: number): number {
  return rank * RANK_MS;
}

interface Node {
  session: string;
  tier: NodeTier;
}

/**
 * How long a node's request for lines of a model is delayed, in milliseconds. Stable nodes are left to interactive
 * requests while volatile ones have room.
 * @param ready nodes that serve the model now
 */
export function leaseDelayMs(node: Node, ready: readonly Node[]): number {
  if (node.tier !== 'stable') return 0;
  return ready.some(({ session, tier }) => tier === 'volatile' && session !== node.session) ? STABLE_MS : 0;
}
