/** What one node holds of the life of one other: who accused it, what it answered, whether it is reached from here. */
import type { Refutation, Suspicion } from './messages.ts';
import type { Liveness } from './types.ts';

/** Distinct observers that shorten the grace; more say nothing new. */
export const OBSERVERS_MAX = 3;
export interface LivenessRow {
  incarnation: number;
  /** The target's signature under `incarnation`; none for 0. */
  refutation: Refutation | undefined;
  /** At this incarnation, by observer; at most OBSERVERS_MAX. */
  readonly suspicions: Map<string, Suspicion>;
  /** A gateway's own judgement. */
  judged: boolean;
  unreachable: boolean;
  /** Its last direct probe failed: pushes go round it meanwhile. */
  detour: boolean;
  /** When each observer last accused; at most ACCUSERS_MAX. */
  readonly accusers: Map<string, number>;
  /** Suspicions in short succession, and the last one. */
  flaps: number;
  suspectedAt: number;
  /** Refuted, but not trusted before this. */
  heldUntil: number;
  announced: Liveness;
}

/** Of a session without any accusation. */
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

/** For the sum over all of them: what others can learn, and no signature. */
export function hashLivenessRow(session: string, row: LivenessRow): number {
  let value = 0x811c9dc5 ^ row.incarnation ^ (row.suspicions.size > 0 ? 0x5bd1e995 : 0);
  for (let i = 0; i < session.length; i++) value = Math.imul(value ^ session.charCodeAt(i), 0x01000193);
  return value >>> 0;
}
