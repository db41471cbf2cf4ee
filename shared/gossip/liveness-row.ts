/**
 * What one node knows about another node's liveness: its accusers, its refutation, and whether this node reaches it.
 */
import type { Liveness, Refutation, Suspicion } from './gossip-events.ts';

/** Distinct observers that shorten the grace. Further observers change nothing. */
export const OBSERVERS_MAX = 3;
export interface LivenessRow {
  incarnation: number;
  /** The target's signature for `incarnation`; none for 0. */
  refutation: Refutation | undefined;
  /** Suspicions at this incarnation, by observer; at most OBSERVERS_MAX. */
  readonly suspicions: Map<string, Suspicion>;
  /** A gateway suspects it by its own judgment. */
  judged: boolean;
  unreachable: boolean;
  /** The last direct probe failed. Pushes skip it until it answers. */
  detour: boolean;
  /** When each observer last accused; at most ACCUSERS_MAX. */
  readonly accusers: Map<string, number>;
  /** Suspicions in quick succession, and the time of the last one. */
  flaps: number;
  suspectedAt: number;
  /** It refuted, but is not trusted before this time. */
  heldUntil: number;
  announced: Liveness;
}

/** A row without any accusation. */
export function newLivenessRow(): LivenessRow {
  return {
    incarnation: 0,
    refutation: undefined,
    suspicions: new Map(),
    judged: false,
    unreachable: false,
    detour: false,
    accusers: new Map(),
    flaps: 0,
    suspectedAt: Number.NEGATIVE_INFINITY,
    heldUntil: Number.NEGATIVE_INFINITY,
    announced: 'alive',
  };
}

export function isSuspected(row: LivenessRow): boolean {
  return row.judged || row.suspicions.size > 0;
}

/** For the sum over all rows. Covers what other nodes can learn about the session, without signatures. */
export function hashLivenessRow(session: string, row: LivenessRow): number {
  let value = 0x811c9dc5 ^ row.incarnation ^ (row.suspicions.size > 0 ? 0x5bd1e995 : 0);
  for (let i = 0; i < session.length; i++) value = Math.imul(value ^ session.charCodeAt(i), 0x01000193);
  return value >>> 0;
}
