/**
 * The lattice. A state is, per issuer,
 *
 *     floors       gateway key → latest floor             max
 *     revocations  gateway keys                           union
 *     entries      session → (ticket, record, eviction)   max of each
 *
 * and merging is taking the better of each, then dropping what a floor or a revocation excludes. It is commutative, associative
 * and idempotent because all registers are totally ordered and because exclusion asks only for what the session id certifies
 * (key, end), never for a state or a clock: what is dropped before a merge is dropped after it, and nothing brings it back.
 * Tickets of one session say the same and need no order. The key that admitted a session alone evicts, collects and ends it: a stolen key
 * or a gateway's wrong clock harms no other key's sessions.
 */
import type { Floor, Revocation } from './control.ts';
import type { Eviction } from './eviction.ts';
import { lifecycleRank } from './node.ts';
import type { OwnerRecord } from './record.ts';

export interface Control {
  /** By key name. */
  readonly floors: ReadonlyMap<string, Floor>;
  readonly revocations: ReadonlyMap<string, Revocation>;
}

/** Order of an owner's words: JOIN ≺ SERVING ≺ DOWN ≺ LEFT, then version, then hash: a total order, so all replicas agree. */
export function compareRecords(a: OwnerRecord | undefined, b: OwnerRecord | undefined): number {
  if (a === undefined || b === undefined) return (a === undefined ? 0 : 1) - (b === undefined ? 0 : 1);
  if (a.state !== b.state) return lifecycleRank(a.state) - lifecycleRank(b.state);
  if (a.version !== b.version) return a.version - b.version;
  return compareText(a.hash, b.hash);
}

/** Any eviction is final; between two the hash decides. */
export function compareEvictions(a: Eviction | undefined, b: Eviction | undefined): number {
  return compareText(a?.hash ?? '', b?.hash ?? '');
}

/** What a session id certifies of its ticket, as far as floors and revocations ask. */
export interface Excludable {
  /** Of the key that signed the ticket. */
  readonly keyName: string;
  /** Seconds since 1970, UTC. */
  readonly expires: number;
}

/** A floor above it, or its key taken back. */
export function isExcluded(session: Excludable, control: Control, rootName: string): boolean {
  return isCollected(session, control) || isRevoked(session.keyName, control, rootName);
}

export function isCollected(session: Excludable, control: Control): boolean {
  const floor = control.floors.get(session.keyName);
  return floor !== undefined && session.expires < floor.at;
}

/** A root that takes back itself takes back all. */
function isRevoked(keyName: string, control: Control, rootName: string): boolean {
  return control.revocations.has(keyName) || control.revocations.has(rootName);
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
