/** A chunk's plaintext is its length in two bytes, the content, zeros. The zeros hide how long the content is. */
import { SealError } from './error.ts';
import { CHUNK_MAX_BYTES, TAG_BYTES } from './suite.ts';

/** The two-byte form of a varint. */
const LENGTH_BYTES = 2;
export const CONTENT_MAX_BYTES = CHUNK_MAX_BYTES - TAG_BYTES - LENGTH_BYTES;

/** @param size of the plaintext, bytes; at least two more than the content has. */
export function padded(content: Uint8Array, size: number): Uint8Array<ArrayBuffer> {
  const plain = new Uint8Array(size);
  pad(content, plain);
  return plain;
}

/** Writes the whole of `plain`, which may hold another chunk's plaintext. */
export function pad(content: Uint8Array, plain: Uint8Array): void {
  const end = LENGTH_BYTES + content.length;
  if (content.length > CONTENT_MAX_BYTES || end > plain.length)
    throw new SealError('too_large', `${content.length} bytes in a chunk of ${plain.length}`);
  plain[0] = 0x40 | (content.length >>> 8);
  plain[1] = content.length;
  plain.set(content, LENGTH_BYTES);
  plain.fill(0, end);
}

/** A view of the content. @throws SealError malformed, also where something else than zeros follows */
export function unpadded(plain: Uint8Array): Uint8Array {
  const [high = 0, low = 0] = plain;
  const end = LENGTH_BYTES + (high & 0x3f) * 256 + low;
  if (plain.length < LENGTH_BYTES || high >>> 6 !== 1 || end > plain.length)
    throw new SealError('malformed', 'a chunk without its length');
  for (let at = end; at < plain.length; at++)
    if (plain[at] !== 0) throw new SealError('malformed', 'padding that is not zero');
  return plain.subarray(LENGTH_BYTES, end);
}

/** Answers are padded to multiples of this: about one token's event. */
export const ANSWER_STEP_BYTES = 256;

export function answerSize(contentBytes: number, step = ANSWER_STEP_BYTES): number {
  const needed = contentBytes + LENGTH_BYTES;
  return Math.min(CHUNK_MAX_BYTES - TAG_BYTES, Math.max(needed, Math.ceil(needed / step) * step));
}

/** Below it every request has the same size. */
const REQUEST_LEAST_BYTES = 256;

/** The size that a request of `bytes` is padded to: at most 12 % more, and few sizes are left (Padmé, PETS 2019 §4.3). */
export function padme(bytes: number): number {
  const size = Math.max(REQUEST_LEAST_BYTES, bytes);
  const exponent = Math.floor(Math.log2(size));
  const kept = Math.floor(Math.log2(exponent)) + 1;
  const step = 2 ** Math.max(0, exponent - kept);
  return Math.ceil(size / step) * step;
}

/** Sizes and contents of a request's chunks, in order. The last of them is the final one. */
export function chunksOf(content: Uint8Array): Uint8Array<ArrayBuffer>[] {
  const total = padme(content.length);
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  for (let at = 0; at < total; at += CONTENT_MAX_BYTES) {
    const size = Math.min(CONTENT_MAX_BYTES, total - at);
    chunks.push(padded(content.subarray(at, at + size), size + LENGTH_BYTES));
  }
  return chunks;
}
