/** The body of a sealed request: `(varint length, sealed)*, 0, sealed final`, framed as in chunked OHTTP. */

import { CHUNK_MAX_BYTES, TAG_BYTES } from './hpke-suite.ts';
import { concatBytes } from './portable-bytes.ts';
import { SealError } from './seal-error.ts';
import { readVarint, varint } from './varint.ts';

const FINAL = new Uint8Array([0]);

/** @param sealed all chunks, the final one last. */
export function joinChunks(sealed: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const last = sealed.length - 1;
  return concatBytes(...sealed.flatMap((chunk, at) => [at === last ? FINAL : varint(chunk.length), chunk]));
}

/** Views of the chunks, the final one last. @throws SealError malformed, cut, too_large */
export function splitChunks(body: Uint8Array): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  for (let at = 0; ; ) {
    const length = readVarint(body, at);
    if (length === undefined) throw new SealError('cut', 'the final chunk is missing');
    const { value, end } = length;
    const size = value === 0 ? body.length - end : value;
    if (size > CHUNK_MAX_BYTES) throw new SealError('too_large', `a chunk of ${size} bytes`);
    if (size < TAG_BYTES || end + size > body.length) throw new SealError('cut', 'the body ends inside a chunk');
    chunks.push(body.subarray(end, end + size));
    if (value === 0) return chunks;
    at = end + size;
  }
}
