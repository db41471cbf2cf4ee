/**
 * One issuer's part of a replica: verified data in the form that the merge rules need, and the fingerprint of this
 * data.
 */

import { ByteWriter, hex } from './byte-codec.ts';
import type { Crypto } from './crypto-interface.ts';
import { FingerprintSum } from './fingerprint.ts';
import { keyName } from './gateway-certificate.ts';
import type { GcWatermark, Revocation } from './gateway-key-statements.ts';
import { type ExclusionKey, isExcluded } from './merge-rules.ts';
import type { Update } from './registry-update.ts';
import {
  bucketOf,
  type Digest,
  type DigestItem,
  type DigestPart,
  GC_WATERMARK_ITEM,
  ITEM_ID_BYTES,
  isUpToDate,
  REVOCATION_ITEM,
} from './replica-digest.ts';
import { Entry, type EntryParts } from './replica-entry.ts';

/** An item that a digest names: an entry, a watermark or a revocation. */
interface StoredItem {
  readonly item: DigestItem;
  readonly kind: 'keys' | DigestPart;
  /** @param full true if the receiver may lack the ticket */
  update(full: boolean): Update;
}

export class IssuerStore {
  readonly issuer: string;
  readonly rootName: string;
  readonly entries = new Map<string, Entry>();
  readonly watermarks = new Map<string, GcWatermark>();
  readonly revocations = new Map<string, Revocation>();
  readonly #crypto: Crypto;
  #sum: FingerprintSum;
  readonly #root: Uint8Array;
  /**
   * The content of the three maps above, by the item ids of digests. `keys` (watermarks and revocations) are sent
   * before sessions. Otherwise a peer that lacks a watermark would repeatedly receive sessions that the watermark
   * drops.
   */
  readonly #held = {
    keys: new Map<string, StoredItem>(),
    live: new Map<string, StoredItem>(),
    left: new Map<string, StoredItem>(),
  };

  constructor(issuer: string, root: Uint8Array, crypto: Crypto) {
    this.issuer = issuer;
    this.rootName = keyName(root);
    this.#root = root;
    this.#crypto = crypto;
    this.#sum = new FingerprintSum(crypto);
  }

  /** A store with the same content. Entries never change, so both stores share them. */
  fork(): IssuerStore {
    const copy = new IssuerStore(this.issuer, this.#root, this.#crypto);
    for (const [session, entry] of this.entries) copy.entries.set(session, entry);
    for (const [key, watermark] of this.watermarks) copy.watermarks.set(key, watermark);
    for (const [key, revocation] of this.revocations) copy.revocations.set(key, revocation);
    for (const kind of ['keys', 'live', 'left'] as const)
      for (const [id, held] of this.#held[kind]) copy.#held[kind].set(id, held);
    copy.#sum = this.#sum.fork();
    return copy;
  }

  /** Number of sessions that have not left. */
  get live(): number {
    return this.#held.live.size;
  }

  excludes(session: ExclusionKey): boolean {
    return isExcluded(session, this, this.rootName);
  }

  put(parts: EntryParts): Entry {
    const entry = new Entry(parts, this.#crypto);
    this.entries.set(entry.session, entry);
    this.#hold(entry);
    return entry;
  }

  /** @returns the sessions that the watermark drops */
  raiseGcWatermark(watermark: GcWatermark): string[] {
    const { certificate, at, bytes } = watermark;
    this.watermarks.set(certificate.keyName, watermark);
    const item = {
      id: this.#controlId('floor', certificate.key),
      state: GC_WATERMARK_ITEM,
      version: at,
      tie: '',
      mark: '',
    };
    this.#hold({ item, kind: 'keys', update: () => ({ kind: 'floor', floor: bytes }) });
    return this.#dropExcluded();
  }

  /** @returns the sessions that the revocation drops */
  revoke(revocation: Revocation): string[] {
    const { key, bytes } = revocation;
    this.revocations.set(revocation.keyName, revocation);
    const id = this.#controlId('revocation', key);
    const item = { id, state: REVOCATION_ITEM, version: 0, tie: '', mark: '' };
    this.#hold({ item, kind: 'keys', update: () => ({ kind: 'revocation', revocation: bytes }) });
    return this.#dropExcluded();
  }

  fingerprint() {
    return this.#sum.sum();
  }

  /** The items of a scope: statements about keys, then live sessions, then sessions that have left. */
  *scope(bucket: number | undefined, part: DigestPart | undefined): Generator<StoredItem> {
    for (const wanted of ['keys', 'live', 'left'] as const) {
      if (part !== undefined && part !== partOf(wanted)) continue;
      for (const held of this.#held[wanted].values()) {
        if (bucket === undefined || bucketOf(held.item.id) === bucket) yield held;
      }
    }
  }

  held(id: string): StoredItem | undefined {
    return this.#held.live.get(id) ?? this.#held.left.get(id) ?? this.#held.keys.get(id);
  }

  /** The ids of items in `digest` that are newer than in this store. */
  wants(digest: Digest): string[] {
    return digest.items.filter((item) => !isUpToDate(this.held(item.id)?.item, item)).map((item) => item.id);
  }

  #dropExcluded(): string[] {
    const dropped: string[] = [];
    for (const entry of this.entries.values()) {
      if (!this.excludes(entry)) continue;
      this.#drop(entry);
      dropped.push(entry.session);
    }
    return dropped;
  }

  #drop(entry: Entry): void {
    this.entries.delete(entry.session);
    this.#release(entry.item.id);
  }

  #hold(held: StoredItem): void {
    this.#release(held.item.id);
    this.#held[held.kind].set(held.item.id, held);
    this.#sum.add(held.item, partOf(held.kind));
  }

  #release(id: string): void {
    const held = this.held(id);
    if (held === undefined) return;
    this.#held[held.kind].delete(id);
    this.#sum.remove(held.item, partOf(held.kind));
  }

  #controlId(thing: 'floor' | 'revocation', key: Uint8Array): string {
    const name = new ByteWriter().label(`${thing}-item`).bytes(key).done();
    return hex(this.#crypto.sha256(name).subarray(0, ITEM_ID_BYTES));
  }
}

/** Statements about keys are compared together with the live sessions. */
function partOf(kind: StoredItem['kind']): DigestPart {
  return kind === 'left' ? 'left' : 'live';
}
