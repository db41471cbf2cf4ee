/**
 * A replica of the registry: one lattice per issuer. It verifies updates, first by rank and then by signature, so that
 * old news costs no cryptography. No clock, no randomness: equal updates in any order make equal replicas.
 */
import { isCollected } from './algebra.ts';
import type { Floor, Revocation } from './control.ts';
import type { Crypto } from './crypto.ts';
import { covers, type Digest, type DigestScope } from './digest.ts';
import type { Entry } from './entry.ts';
import { type Fingerprint, Tally } from './fingerprint.ts';
import { type MergeResult, Merger } from './merger.ts';
import { Shelves } from './shelves.ts';
import type { Ticket } from './ticket.ts';
import { encodeUpdate, type Update } from './update.ts';

export interface ReplicaLimits {
  /** Sessions per issuer, tombstones included. Default 65,536. */
  entriesPerIssuer?: number;
  /** Those of them that have not left. Default: half, so that the departures of a whole registry still fit. */
  livePerIssuer?: number;
  /** Gateway keys per issuer with a floor, and as many revoked ones. Default 1,024. */
  keysPerIssuer?: number;
}

export interface ReplicaOptions {
  crypto: Crypto;
  /** True if this replica accepts that issuer. */
  accepts(issuer: string): boolean;
  limits?: ReplicaLimits;
}

export type TicketState = 'good' | 'unknown_issuer' | 'revoked' | 'collected' | 'left';

export class Replica {
  readonly #crypto: Crypto;
  readonly #limits: Required<ReplicaLimits>;
  readonly #shelves: Shelves;
  readonly #merger: Merger;

  constructor({ crypto, accepts, limits }: ReplicaOptions) {
    this.#crypto = crypto;
    const entriesPerIssuer = limits?.entriesPerIssuer ?? 65_536;
    this.#limits = {
      entriesPerIssuer,
      livePerIssuer: limits?.livePerIssuer ?? Math.ceil(entriesPerIssuer / 2),
      keysPerIssuer: limits?.keysPerIssuer ?? 1024,
    };
    this.#shelves = new Shelves(crypto, accepts);
    this.#merger = new Merger({ crypto, shelves: this.#shelves, ...this.#limits });
  }

  /** Another replica with the same content at a fraction of the memory, for simulations of a thousand. */
  fork(): Replica {
    const copy = new Replica({ crypto: this.#crypto, accepts: this.#shelves.accepts, limits: this.#limits });
    copy.#shelves.copy(this.#shelves);
    return copy;
  }

  /** Takes what is better than the known state. Never throws: errors are in the result. */
  merge(update: Update | Uint8Array): MergeResult {
    return this.#merger.merge(update, false);
  }

  /** `merge` for what this replica verified and stored before: signatures are not checked again. */
  load(update: Update | Uint8Array): MergeResult {
    return this.#merger.merge(update, true);
  }

  /**
   * Replaces the list of issuers. Issuers that are no longer listed are removed with their sessions. @returns those
   * sessions
   */
  setIssuers(accepts: (issuer: string) => boolean): string[] {
    return this.#shelves.setIssuers(accepts);
  }

  accepts(issuer: string): boolean {
    return this.#shelves.accepts(issuer);
  }

  get(session: string): Entry | undefined {
    return this.#shelves.entry(session);
  }

  /** Entries of one issuer or of all. */
  *entries(issuer?: string): Generator<Entry> {
    for (const shelf of this.#shelves.all()) {
      if (issuer === undefined || shelf.issuer === issuer) yield* shelf.entries.values();
    }
  }

  get size(): number {
    let size = 0;
    for (const shelf of this.#shelves.all()) size += shelf.entries.size;
    return size;
  }

  /** Issuers of which anything is known. */
  issuers(): string[] {
    return this.#shelves.issuers();
  }

  /** Whether the holder of this (verified) ticket may speak; asked before a socket is accepted. */
  ticketState(ticket: Ticket): TicketState {
    if (!this.#shelves.accepts(ticket.issuer)) return 'unknown_issuer';
    const shelf = this.#shelves.get(ticket.issuer);
    if (shelf === undefined) return 'good';
    if (shelf.excludes(ticket)) return isCollected(ticket, shelf) ? 'collected' : 'revoked';
    return shelf.entries.get(ticket.session)?.state === 'LEFT' ? 'left' : 'good';
  }

  floors(issuer: string): Floor[] {
    return [...(this.#shelves.get(issuer)?.floors.values() ?? [])];
  }

  revocations(issuer: string): Revocation[] {
    return [...(this.#shelves.get(issuer)?.revocations.values() ?? [])];
  }

  fingerprint(issuer: string): Fingerprint {
    return this.#shelves.get(issuer)?.fingerprint() ?? new Tally(this.#crypto).sum();
  }

  digest(scope: DigestScope): Digest {
    const held = this.#shelves.get(scope.issuer)?.scope(scope.bucket, scope.part) ?? [];
    return { ...scope, items: Array.from(held, ({ item }) => item) };
  }

  /**
   * What the sender of `digest` lacks, up to `maxBytes` (at least one update): keys first, then live sessions, then
   * left ones. Not `complete`: the next digest finds the rest.
   */
  delta(digest: Digest, maxBytes: number = Number.POSITIVE_INFINITY): { updates: Update[]; complete: boolean } {
    const shelf = this.#shelves.get(digest.issuer);
    if (shelf === undefined) return { updates: [], complete: true };
    const theirs = new Map(digest.items.map((item) => [item.id, item]));
    const updates: Update[] = [];
    let bytes = 0;
    for (const held of shelf.scope(digest.bucket, digest.part)) {
      const other = theirs.get(held.item.id);
      if (covers(other, held.item)) continue;
      const update = held.update(other === undefined || other.state === 0);
      bytes += encodeUpdate(update).length;
      if (bytes > maxBytes && updates.length > 0) return { updates, complete: false };
      updates.push(update);
    }
    return { updates, complete: true };
  }

  /** Ids in `digest` of which the sender knows more: what to pull. */
  wants(digest: Digest): string[] {
    const shelf = this.#shelves.get(digest.issuer);
    if (shelf !== undefined) return shelf.wants(digest);
    return this.#shelves.accepts(digest.issuer) ? digest.items.map((item) => item.id) : [];
  }

  /** Answers a pull: full updates of those ids that are here. */
  pull(issuer: string, ids: readonly string[]): Update[] {
    const updates: Update[] = [];
    for (const id of ids) {
      const held = this.#shelves.get(issuer)?.held(id);
      if (held !== undefined) updates.push(held.update(true));
    }
    return updates;
  }

  /** Everything of one issuer, to be stored and passed to `load`. */
  updates(issuer: string): Update[] {
    return this.delta({ issuer, items: [] }).updates;
  }
}
