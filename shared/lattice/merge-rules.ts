/**
 * The merge rules of the lattice. A state has these registers per issuer:
 *
 *     register     key → value                               merge
 *     watermarks   gateway key → latest watermark             max
 *     revocations  gateway keys                               union
 *     entries      session → (ticket, record, eviction)       max of each
 *
 * A session is _collected_ if it is dropped because of a watermark. A merge takes the better value of each register,
 * and then drops the sessions that a watermark or a revocation excludes. It is commutative, associative and idempotent,
 * because all registers are totally ordered, and because exclusion depends only on data that the session id certifies
 * (key, end), never on a state or a clock. So a session that is dropped before a merge is dropped after it, and nothing
 * brings it back. All tickets of one session have the same content and need no order. Only the key that admitted a
 * session evicts, collects and ends it, so a stolen key or a gateway's wrong clock harms no other key's sessions.
 */

import type { Eviction } from './eviction.ts';
import type { GcWatermark, Revocation } from './gateway-key-statements.ts';
import { sessionStateRank } from './node-record.ts';
import type { SignedRecord } from './signed-record.ts';

interface IssuerControl {
  /** Watermarks by key name. */
  readonly watermarks: ReadonlyMap<string, GcWatermark>;
  readonly revocations: ReadonlyMap<string, Revocation>;
}

/**
 * Order of an owner's records: JOIN ≺ SERVING ≺ DOWN ≺ LEFT, then version, then hash. It is total, so all replicas
 * agree.
 */
export function compareRecords(a: SignedRecord | undefined, b: SignedRecord | undefined): number {
  if (a === undefined || b === undefined) return (a === undefined ? 0 : 1) - (b === undefined ? 0 : 1);
  if (a.state !== b.state) return sessionStateRank(a.state) - sessionStateRank(b.state);
  if (a.version !== b.version) return a.version - b.version;
  return compareText(a.hash, b.hash);
}

/** Order of evictions. Any eviction is final; the hash decides between two evictions of one session. */
export function compareEvictions(a: Eviction | undefined, b: Eviction | undefined): number {
  return compareText(a?.hash ?? '', b?.hash ?? '');
}

/** The parts of a ticket that watermarks and revocations need. The session id certifies both of them. */
export interface ExclusionKey {
  /** Name of the key that signed the ticket. */
  readonly keyName: string;
  /** End of the ticket, in seconds since 1970. */
  readonly expires: number;
}

/** True if a watermark has passed the session, or the key that admitted it is revoked. */
export function isExcluded(session: ExclusionKey, control: IssuerControl, rootName: string): boolean {
  return isCollected(session, control) || isRevoked(session.keyName, control, rootName);
}

export function isCollected(session: ExclusionKey, control: IssuerControl): boolean {
  const watermark = control.watermarks.get(session.keyName);
  return watermark !== undefined && session.expires < watermark.at;
}

/** If a root revokes itself, everything of its issuer is revoked. */
function isRevoked(keyName: string, control: IssuerControl, rootName: string): boolean {
  return control.revocations.has(keyName) || control.revocations.has(rootName);
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
