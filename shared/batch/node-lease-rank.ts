/**
 * Decides which of several nodes gets a waiting line: the node with the context that is closest to ready, and among
 * equal nodes a volatile one.
 */
import type { ContextWarmth } from './function-context.ts';

const WARMTH: Record<ContextWarmth, number> = { ready: 0, loading: 1, stored: 2, cold: 3 };
/**
 * Nodes of each rank learn of a waiting line this much later than nodes of the previous rank. This is enough for a node
 * that was informed to request the line.
 */
const RANK_MS = 150;
/**
 * Delay of a stable node's request if volatile nodes serve the model too, so that it gets only the lines that volatile
 * nodes do not take.
 */
const STABLE_MS = 500;

export type NodeTier = 'stable' | 'volatile';

/**
 * The rank of a node; rank 0 is informed first. Warmth counts more than tier: a stable node that is ready starts
 * immediately, while a volatile one may load for minutes.
 */
export function leaseRank(warmth: ContextWarmth, tier: NodeTier): number {
  return 2 * WARMTH[warmth] + (tier === 'stable' ? 1 : 0);
}

/** Delay in milliseconds after which nodes of this rank learn of a waiting line. */
export function offerDelayMs(rank: number): number {
  return rank * RANK_MS;
}

interface Node {
  session: string;
  tier: NodeTier;
}

/**
 * Delay in milliseconds of a node's request for lines of a model. Stable nodes are left to interactive requests while
 * volatile ones have capacity.
 * @param ready nodes that serve the model now
 */
export function leaseDelayMs(node: Node, ready: readonly Node[]): number {
  if (node.tier !== 'stable') return 0;
  return ready.some(({ session, tier }) => tier === 'volatile' && session !== node.session) ? STABLE_MS : 0;
}
