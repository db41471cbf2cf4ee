/**
 * Nonces of the chunks that are sealed with one key: the base nonce XOR the chunk's index (chunked OHTTP §6; RFC 9180
 * §5.2).
 */
import { SealError } from './seal-error.ts';

/**
 * Maximum number of chunks per key. If the counter overflowed, it would repeat a nonce. No stream has nearly as many
 * chunks.
 */
const CHUNKS_MAX = 2 ** 32 - 1;

export class ChunkNonces {
  readonly #base: Uint8Array;
  #count = 0;

  constructor(base: Uint8Array) {
    this.#base = base;
  }

  /** The nonce of the next chunk. @throws SealError too_large */
  next(): Uint8Array<ArrayBuffer> {
    if (this.#count > CHUNKS_MAX) throw new SealError('too_large', 'too many chunks under one key');
    // The nonce is written byte by byte. A DataView would move its 12 bytes off the JavaScript heap, which makes
    // freeing each nonce expensive.
    const nonce = new Uint8Array(this.#base);
    for (let at = nonce.length - 1, rest = this.#count; rest > 0; at--, rest >>>= 8)
      nonce[at] = (nonce[at] ?? 0) ^ rest;
    this.#count++;
    return nonce;
  }
}
