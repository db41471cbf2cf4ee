/**
 * A replica of the registry: one lattice per issuer. It compares an update with the known state before it verifies
 * signatures, so that an old update costs no cryptography. It uses no clock and no randomness. If two replicas merge
 * the same updates in any order, they are equal.
 */

import type { Crypto } from './crypto-interface.ts';
import { type Fingerprint, FingerprintSum } from './fingerprint.ts';
import type { GcWatermark, Revocation } from './gateway-key-statements.ts';
import { IssuerStores } from './issuer-stores.ts';
import { isCollected } from './merge-rules.ts';
import { encodeUpdate, type Update } from './registry-update.ts';
import { type Digest, type DigestScope, isUpToDate } from './replica-digest.ts';
import type { Entry } from './replica-entry.ts';
import type { Ticket } from './ticket.ts';
import { type MergeResult, Merger } from './update-merger.ts';

export interface ReplicaLimits {
  /** Maximum number of sessions per issuer, including those that have left. Default: 65,536. */
  entriesPerIssuer?: number;
  /**
   * Maximum number of sessions per issuer that have not left. Default: half of `entriesPerIssuer`, so that all entries
   * still fit if all live sessions leave and new ones join.
   */
  livePerIssuer?: number;
  /** Maximum number of gateway keys per issuer with a watermark, and of revoked keys. Default: 1,024. */
  keysPerIssuer?: number;
}

interface ReplicaOptions {
  crypto: Crypto;
  /** True if this replica accepts updates of `issuer`. */
  accepts(issuer: string): boolean;
  limits?: ReplicaLimits;
}

type TicketState = 'good' | 'unknown_issuer' | 'revoked' | 'collected' | 'left';

export class RegistryReplica {
  readonly #crypto: Crypto;
  readonly #limits: Required<ReplicaLimits>;
  readonly #stores: IssuerStores;
  readonly #merger: Merger;

  constructor({ crypto, accepts, limits }: ReplicaOptions) {
    this.#crypto = crypto;
    const entriesPerIssuer = limits?.entriesPerIssuer ?? 65_536;
    this.#limits = {
      entriesPerIssuer,
      livePerIssuer: limits?.livePerIssuer ?? Math.ceil(entriesPerIssuer / 2),
      keysPerIssuer: limits?.keysPerIssuer ?? 1024,
    };
    this.#stores = new IssuerStores(crypto, accepts);
    this.#merger = new Merger({ crypto, shelves: this.#stores, ...this.#limits });
  }

  /**
   * Another replica with the same content, which shares memory with this replica. For simulations of a thousand
   * replicas.
   */
  fork(): RegistryReplica {
    const copy = new RegistryReplica({ crypto: this.#crypto, accepts: this.#stores.accepts, limits: this.#limits });
    copy.#stores.copy(this.#stores);
    return copy;
  }

  /** Merges an update if it is better than the known state. Never throws: errors are in the result. */
  merge(update: Update | Uint8Array): MergeResult {
    return this.#merger.merge(update, false);
  }

  /** Merges an update that this replica verified and stored before. Its signatures are not checked again. */
  load(update: Update | Uint8Array): MergeResult {
    return this.#merger.merge(update, true);
  }

  /**
   * Replaces the list of issuers. Issuers that are no longer listed are removed with their sessions. @returns the
   * removed sessions
   */
  setIssuers(accepts: (issuer: string) => boolean): string[] {
    return this.#stores.setIssuers(accepts);
  }

  accepts(issuer: string): boolean {
    return this.#stores.accepts(issuer);
  }

  get(session: string): Entry | undefined {
    return this.#stores.entry(session);
  }

  /** The entries of `issuer`, or of all issuers. */
  *entries(issuer?: string): Generator<Entry> {
    for (const store of this.#stores.all()) {
      if (issuer === undefined || store.issuer === issuer) yield* store.entries.values();
    }
  }

  get size(): number {
    let size = 0;
    for (const store of this.#stores.all()) size += store.entries.size;
    return size;
  }

  /** Issuers that have sessions or statements in this replica, or had some. */
  issuers(): string[] {
    return this.#stores.issuers();
  }

  /** The state of a verified ticket. Its session may connect only if the state is `good`. */
  ticketState(ticket: Ticket): TicketState {
    if (!this.#stores.accepts(ticket.issuer)) return 'unknown_issuer';
    const store = this.#stores.get(ticket.issuer);
    if (store === undefined) return 'good';
    if (store.excludes(ticket)) return isCollected(ticket, store) ? 'collected' : 'revoked';
    return store.entries.get(ticket.session)?.state === 'LEFT' ? 'left' : 'good';
  }

  watermarks(issuer: string): GcWatermark[] {
    return [...(this.#stores.get(issuer)?.watermarks.values() ?? [])];
  }

  revocations(issuer: string): Revocation[] {
    return [...(this.#stores.get(issuer)?.revocations.values() ?? [])];
  }

  fingerprint(issuer: string): Fingerprint {
    return this.#stores.get(issuer)?.fingerprint() ?? new FingerprintSum(this.#crypto).sum();
  }

  digest(scope: DigestScope): Digest {
    const held = this.#stores.get(scope.issuer)?.scope(scope.bucket, scope.part) ?? [];
    return { ...scope, items: Array.from(held, ({ item }) => item) };
  }

  /**
   * Updates that the sender of `digest` lacks, up to `maxBytes` but at least one: statements about keys, then live
   * sessions, then LEFT sessions. If the result is not `complete`, the sender's next digest brings the rest.
   */
  delta(digest: Digest, maxBytes: number = Number.POSITIVE_INFINITY): { updates: Update[]; complete: boolean } {
    const store = this.#stores.get(digest.issuer);
    if (store === undefined) return { updates: [], complete: true };
    const theirs = new Map(digest.items.map((item) => [item.id, item]));
    const updates: Update[] = [];
    let bytes = 0;
    for (const held of store.scope(digest.bucket, digest.part)) {
      const other = theirs.get(held.item.id);
      if (isUpToDate(other, held.item)) continue;
      const update = held.update(other === undefined || other.state === 0);
      bytes += encodeUpdate(update).length;
      if (bytes > maxBytes && updates.length > 0) return { updates, complete: false };
      updates.push(update);
    }
    return { updates, complete: true };
  }

  /** The ids of items in `digest` that are newer than in this replica, so that they must be requested. */
  wants(digest: Digest): string[] {
    const store = this.#stores.get(digest.issuer);
    if (store !== undefined) return store.wants(digest);
    return this.#stores.accepts(digest.issuer) ? digest.items.map((item) => item.id) : [];
  }

  /** Full updates of those `ids` that this replica has. */
  pull(issuer: string, ids: readonly string[]): Update[] {
    const updates: Update[] = [];
    for (const id of ids) {
      const held = this.#stores.get(issuer)?.held(id);
      if (held !== undefined) updates.push(held.update(true));
    }
    return updates;
  }

  /** All updates of one issuer, to be stored and later passed to `load`. */
  updates(issuer: string): Update[] {
    return this.delta({ issuer, items: [] }).updates;
  }
}
