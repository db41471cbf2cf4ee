/**
 * The lattice. A state is, per issuer,
 *
 *     floors       gateway key → latest floor                       max
 *     revocations  gateway key → earliest `from`                    min
 *     entries      session → (ticket, record, gateway key → eviction)   max of each
 *
 * and merging is taking the better of each, then dropping what a floor or a revocation excludes. It is commutative, associative
 * and idempotent because all three registers are totally ordered and because exclusion asks only for what the session id certifies
 * (key, birth, end), never for a state or a clock: what is dropped before a merge is dropped after it, and nothing brings it back.
 * Tickets of one session say the same and need no order.
 */
import type { Floor, Revocation } from './control.ts';
import type { Eviction } from './eviction.ts';
import { lifecycleRank } from './node.ts';
import type { OwnerRecord } from './record.ts';
import type { Ticket } from './ticket.ts';
import { EVICTIONS_MAX } from './update.ts';

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

/** One per key, the greater hash of two; the first keys by name where they are too many. */
export function joinEvictions(mine: readonly Eviction[], theirs: readonly Eviction[]): readonly Eviction[] {
  if (theirs.length === 0) return mine;
  const byKey = new Map<string, Eviction>();
  for (const eviction of [...mine, ...theirs]) {
    const { keyName } = eviction.certificate;
    const other = byKey.get(keyName);
    if (other === undefined || other.hash < eviction.hash) byKey.set(keyName, eviction);
  }
  const joined = [...byKey.values()].sort((a, b) => compareText(a.certificate.keyName, b.certificate.keyName));
  const kept = joined.slice(0, EVICTIONS_MAX);
  return kept.length === mine.length && kept.every((eviction, i) => eviction.hash === mine[i]?.hash) ? mine : kept;
}

/** A floor above it, or its key taken back. */
export function isExcluded(ticket: Ticket, control: Control, rootName: string): boolean {
  return isCollected(ticket, control) || isRevoked(ticket.certificate.keyName, control, rootName);
}

export function isCollected(ticket: Ticket, control: Control): boolean {
  const floor = control.floors.get(ticket.certificate.keyName);
  return floor !== undefined && ticket.expires < floor.at;
}

export function isRevoked(keyName: string, control: Control, rootName: string): boolean {
  return control.revocations.has(keyName) || control.revocations.has(rootName);
}

/** Evictions by a revoked key stand for sessions born before the revocation: what a thief evicts afterwards does not count. */
export function isVoid(eviction: Eviction, ticket: Ticket, control: Control): boolean {
  const revocation = control.revocations.get(eviction.certificate.keyName);
  return revocation !== undefined && ticket.birth >= revocation.from;
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
