/**
 * A summary of a replica in about 26 bytes per entry. Comparing the digests of two replicas shows which entries each of
 * them lacks or has in an older state. A session has one owner with one record, so (state, version, hash) suffices
 * instead of a version vector.
 */
import { ByteReader, ByteWriter, hex } from './byte-codec.ts';
import type { Crypto } from './crypto-interface.ts';
import { LatticeError } from './lattice-error.ts';

export interface DigestItem {
  /** The item's id in 32 hex digits. */
  id: string;
  /** 0: no record; 1 to 4: JOIN to LEFT; then GC_WATERMARK_ITEM and REVOCATION_ITEM. */
  state: number;
  version: number;
  /** The first 16 hex digits of the record's hash; empty if there is no record. */
  tie: string;
  /** The first 16 hex digits of the eviction's hash; empty if there is no eviction. */
  mark: string;
}

export const GC_WATERMARK_ITEM = 5;
export const REVOCATION_ITEM = 6;

/**
 * Live sessions are compared separately from sessions that have left, because the latter are many and rarely differ.
 * Statements about keys are compared with the live sessions.
 */
export type DigestPart = 'live' | 'left';

/**
 * Selects the entries that are compared. If `bucket` or `part` is absent, entries of all buckets or of both parts are
 * compared.
 */
export interface DigestScope {
  issuer: string;
  /** 0 to 15: the value of the first hex digit of the items' ids. */
  bucket?: number | undefined;
  part?: DigestPart | undefined;
}

export interface Digest extends DigestScope {
  items: DigestItem[];
}

export const BUCKETS = 16;
/**
 * Length of an item id in bytes, as strong as a session id. With 64 bits, a provider that tries keys for a day could
 * create two sessions with the same item id, and replicas would never finish comparing them.
 */
export const ITEM_ID_BYTES = 16;
/**
 * Maximum number of items in one encoded digest, which bounds the memory that one message can use. Replicas with more
 * items compare by bucket.
 */
export const DIGEST_ITEMS_MAX = 4096;
const EVICTED = 0x80;

export function bucketOf(id: string): number {
  return Number.parseInt(id.slice(0, 1), 16);
}

/** True if the replica with `theirs` needs no update from the replica with `mine`. */
export function isUpToDate(theirs: DigestItem | undefined, mine: DigestItem): boolean {
  if (theirs === undefined) return false;
  if (mine.state >= GC_WATERMARK_ITEM) return theirs.state === mine.state && theirs.version >= mine.version;
  return compareItems(theirs, mine) >= 0 && theirs.mark >= mine.mark;
}

function compareItems(a: DigestItem, b: DigestItem): number {
  if (a.state !== b.state) return a.state - b.state;
  if (a.version !== b.version) return a.version - b.version;
  return a.tie < b.tie ? -1 : a.tie > b.tie ? 1 : 0;
}

export function encodeDigest(digest: Digest): Uint8Array {
  const scope = (digest.bucket ?? BUCKETS) | (digest.part === 'live' ? 0x20 : digest.part === 'left' ? 0x40 : 0);
  const out = new ByteWriter().text(digest.issuer).byte(scope).varint(digest.items.length);
  for (const item of digest.items) writeItem(out, item);
  return out.done();
}

/** @throws LatticeError truncated, malformed, too_large */
export function decodeDigest(bytes: Uint8Array): Digest {
  const input = new ByteReader(bytes);
  const issuer = input.text(26);
  const scope = input.byte();
  const bucket = scope & 0x1f;
  if (bucket > BUCKETS || scope >= 0x60) throw new LatticeError('malformed', 'unknown bucket');
  const count = input.varint();
  if (count > DIGEST_ITEMS_MAX) throw new LatticeError('too_large', `digest of ${count} items`);
  const items: DigestItem[] = [];
  for (let i = 0; i < count; i++) items.push(readItem(input));
  input.end();
  const part = scope >= 0x40 ? 'left' : scope >= 0x20 ? 'live' : undefined;
  return { issuer, items, bucket: bucket === BUCKETS ? undefined : bucket, part };
}

/** Encodes the ids of entries that a peer requests. */
export function encodeIds(ids: readonly string[]): Uint8Array {
  const out = new ByteWriter().varint(ids.length);
  for (const id of ids) out.bytes(fromHex(id));
  return out.done();
}

/** Decodes the ids of requested entries. @throws LatticeError truncated, malformed, too_large */
export function decodeIds(bytes: Uint8Array): string[] {
  const input = new ByteReader(bytes);
  const count = input.varint();
  if (count > DIGEST_ITEMS_MAX) throw new LatticeError('too_large', `${count} ids`);
  const ids: string[] = [];
  for (let i = 0; i < count; i++) ids.push(hex(input.bytes(ITEM_ID_BYTES)));
  input.end();
  return ids;
}

/** 64 bits of a hash over all fields of `item`. */
export function itemHash(item: DigestItem, crypto: Pick<Crypto, 'sha256'>): bigint {
  const out = new ByteWriter().label('item');
  writeItem(out, item);
  return BigInt(`0x${hex(crypto.sha256(out.done()).subarray(0, 8))}`);
}

function writeItem(out: ByteWriter, item: DigestItem): void {
  out.bytes(fromHex(item.id)).byte(item.state | (item.mark === '' ? 0 : EVICTED));
  out.varint(item.version).bytes(fromHex(item.tie)).bytes(fromHex(item.mark));
}

function readItem(input: ByteReader): DigestItem {
  const id = hex(input.bytes(ITEM_ID_BYTES));
  const head = input.byte();
  const state = head & ~EVICTED;
  if (state > REVOCATION_ITEM) throw new LatticeError('malformed', 'unknown state');
  const version = input.varint();
  const tie = state > 0 && state < GC_WATERMARK_ITEM ? hex(input.bytes(8)) : '';
  return { id, state, version, tie, mark: (head & EVICTED) === 0 ? '' : hex(input.bytes(8)) };
}

function fromHex(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = Number.parseInt(text.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}
