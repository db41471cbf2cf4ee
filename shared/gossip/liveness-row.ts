/**
 * What one node knows about another node's liveness: its accusers, its refutation, and whether this node reaches it.
 */

import { fnv1a } from '../text/hash.ts';
import type { Liveness, Refutation, Suspicion } from './gossip-events.ts';

/** Number of distinct observers that shorten the grace period. Further observers change nothing. */
export const OBSERVERS_MAX = 3;
export interface LivenessRow {
  incarnation: number;
  /** The target's signature for `incarnation`; undefined for incarnation 0. */
  refutation: Refutation | undefined;
  /** Suspicions of the session at `incarnation`, by observer. At most OBSERVERS_MAX. */
  readonly suspicions: Map<string, Suspicion>;
  /** True if a gateway suspects the session by its own judgment. */
  suspectedLocally: boolean;
  unreachable: boolean;
  /** True if the last direct probe failed. Pushes skip the session until it answers. */
  probeFailed: boolean;
  /** When each observer last accused the session. At most ACCUSERS_MAX. */
  readonly accusers: Map<string, number>;
  /** True if the session was suspected less than `flapWindowMs` after it was suspected before. */
  flapped: boolean;
  /** When the session was last suspected. */
  suspectedAt: number;
  /** Before this time no requests go to the session, although it is no longer suspected. */
  dampedUntil: number;
  announced: Liveness;
}

/** The row of a node that is not suspected. */
export function newLivenessRow(): LivenessRow {
  return {
    incarnation: 0,
    refutation: undefined,
    suspicions: new Map(),
    suspectedLocally: false,
    unreachable: false,
    probeFailed: false,
    accusers: new Map(),
    flapped: false,
    suspectedAt: Number.NEGATIVE_INFINITY,
    dampedUntil: Number.NEGATIVE_INFINITY,
    announced: 'alive',
  };
}

export function isSuspected(row: LivenessRow): boolean {
  return row.suspectedLocally || row.suspicions.size > 0;
}

/**
 * Hash of a row, for the sum over all rows. Covers the incarnation and whether there are suspicions, but no signatures.
 */
export function hashLivenessRow(session: string, row: LivenessRow): number {
  return fnv1a(session, 0x811c9dc5 ^ row.incarnation ^ (row.suspicions.size > 0 ? 0x5bd1e995 : 0));
}
