/**
 * Padding of chunks. A chunk's plaintext is the content's length in two bytes, the content, and zeros, which hide the
 * length of the content.
 */

import { CHUNK_MAX_BYTES, TAG_BYTES } from './hpke-suite.ts';
import { SealError } from './seal-error.ts';

/** The length field is always a two-byte varint. */
const LENGTH_BYTES = 2;
export const CONTENT_MAX_BYTES = CHUNK_MAX_BYTES - TAG_BYTES - LENGTH_BYTES;

/** @param size size of the plaintext in bytes, at least two more than the content */
export function padToSize(content: Uint8Array, size: number): Uint8Array<ArrayBuffer> {
  const plain = new Uint8Array(size);
  padInPlace(content, plain);
  return plain;
}

/** Like `padToSize`, into an existing buffer. Overwrites all of `plain`, which may hold another chunk's plaintext. */
export function padInPlace(content: Uint8Array, plain: Uint8Array): void {
  const end = LENGTH_BYTES + content.length;
  if (content.length > CONTENT_MAX_BYTES || end > plain.length)
    throw new SealError('too_large', `${content.length} bytes in a chunk of ${plain.length}`);
  plain[0] = 0x40 | (content.length >>> 8);
  plain[1] = content.length;
  plain.set(content, LENGTH_BYTES);
  plain.fill(0, end);
}

/**
 * Returns a view of the content. @throws SealError malformed if the length is wrong, or bytes other than zero follow
 * the content
 */
export function removePadding(plain: Uint8Array): Uint8Array {
  const [high = 0, low = 0] = plain;
  const end = LENGTH_BYTES + (high & 0x3f) * 256 + low;
  if (plain.length < LENGTH_BYTES || high >>> 6 !== 1 || end > plain.length)
    throw new SealError('malformed', 'the length of a chunk is missing or wrong');
  for (let at = end; at < plain.length; at++)
    if (plain[at] !== 0) throw new SealError('malformed', 'the padding of a chunk must be zeros');
  return plain.subarray(LENGTH_BYTES, end);
}

/** Answers are padded to a multiple of this size, which is about the size of one token's event. */
const ANSWER_STEP_BYTES = 256;

export function paddedAnswerSize(contentBytes: number, step = ANSWER_STEP_BYTES): number {
  const needed = contentBytes + LENGTH_BYTES;
  return Math.min(CHUNK_MAX_BYTES - TAG_BYTES, Math.max(needed, Math.ceil(needed / step) * step));
}

/** Requests that are shorter are padded to this size. */
const REQUEST_MIN_BYTES = 256;

/**
 * The size to which a request of `bytes` bytes is padded: at most 12 % more, with few distinct values (Padmé, PETS 2019
 * §4.3).
 */
export function padme(bytes: number): number {
  const size = Math.max(REQUEST_MIN_BYTES, bytes);
  const exponent = Math.floor(Math.log2(size));
  const kept = Math.floor(Math.log2(exponent)) + 1;
  const step = 2 ** Math.max(0, exponent - kept);
  return Math.ceil(size / step) * step;
}

/** Splits a request into padded chunks, the final one last. */
export function splitIntoChunks(content: Uint8Array): Uint8Array<ArrayBuffer>[] {
  const total = padme(content.length);
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  for (let at = 0; at < total; at += CONTENT_MAX_BYTES) {
    const size = Math.min(CONTENT_MAX_BYTES, total - at);
    chunks.push(padToSize(content.subarray(at, at + size), size + LENGTH_BYTES));
  }
  return chunks;
}
