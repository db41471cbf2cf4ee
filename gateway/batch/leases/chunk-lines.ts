/** The lines of a leased chunk. */
import type { GrantedLease } from '../../../shared/batch/granted-lease.ts';
import type { LeaseRef } from '../../../shared/batch/lease-ledger.ts';
import { concat } from '../../../shared/collections/concat.ts';
import { type FileStore, FileStoreError } from '../../files/file-store.ts';

/** A lease of at most this many bytes is granted with its lines: this saves one of the node's three requests. */
const LINES_MAX_BYTES = 64 * 1024;

/** The place of the lines: a file, or `text` after they got results of other batches. */
interface ChunkPlace {
  file: string;
  offset: number;
  length: number;
  text?: Uint8Array;
}

/** @throws FileStoreError */
export async function chunkOf(
  store: FileStore,
  file: string,
  range: { offset: number; length: number },
): Promise<AsyncIterable<Uint8Array>> {
  const content = await store.read(file, range);
  if (content === undefined) throw new FileStoreError('damaged', `the file store has lost ${file}`);
  return content;
}

/** The lease with its lines. Without them if they are long or cannot be read: then the node asks for them. */
export async function withLines(
  store: FileStore,
  lease: GrantedLease,
  batch: { range(ref: LeaseRef): ChunkPlace | null | Promise<ChunkPlace | null> },
  ref: LeaseRef,
): Promise<GrantedLease> {
  if (lease.bytes > LINES_MAX_BYTES) return lease;
  try {
    const place = await batch.range(ref);
    if (place === null) return lease;
    const pieces: Uint8Array[] = place.text === undefined ? [] : [place.text];
    if (place.text === undefined) for await (const piece of await chunkOf(store, place.file, place)) pieces.push(piece);
    return { ...lease, lines: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(concat(pieces)) };
  } catch {
    return lease;
  }
}
