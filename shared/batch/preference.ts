/** Which node a waiting line goes to, where several would take it: the one whose context is nearest to ready, of those a volatile one. */
import type { Warmth } from './function.ts';

const WARMTH: Record<Warmth, number> = { ready: 0, loading: 1, stored: 2, cold: 3 };
/** Each rank is told of a waiting line this much later than the one before: a node that is told asks within it. */
const RANK_MS = 150;
/** A stable node asks this much later than the volatile ones of its model, so that it gets what they leave. */
const STABLE_MS = 500;

export type Tier = 'stable' | 'volatile';

/** 0 is told first. Warmth counts more than tier: a stable node that is ready begins at once, a volatile one may load for minutes. */
export function leaseRank(warmth: Warmth, tier: Tier): number {
  return 2 * WARMTH[warmth] + (tier === 'stable' ? 1 : 0);
}

/** How long after the first node one of this rank hears of a waiting line, in milliseconds. */
export function toldAfterMs(rank: number): number {
  return rank * RANK_MS;
}

interface Node {
  session: string;
  tier: Tier;
}

/**
 * How long a node that asks for lines of a model is kept waiting, in milliseconds: stable nodes are left to interactive requests while
 * volatile ones have room.
 * @param ready nodes that serve the model now
 */
export function heldBackMs(node: Node, ready: readonly Node[]): number {
  if (node.tier !== 'stable') return 0;
  return ready.some(({ session, tier }) => tier === 'volatile' && session !== node.session) ? STABLE_MS : 0;
}
