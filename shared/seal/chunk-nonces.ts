/** Nonces of the chunks under one key: the base nonce XOR the chunk's index (chunked OHTTP §6; RFC 9180 §5.2). */
import { SealError } from './seal-error.ts';

/** Limit of chunks per key. A counter that wraps would reuse a nonce, but no stream gets near this limit. */
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
    // Written byte by byte: a DataView would move the buffer of these 12 bytes off the JavaScript heap, which makes
    // freeing each of them expensive.
    const nonce = new Uint8Array(this.#base);
    for (let at = nonce.length - 1, rest = this.#count; rest > 0; at--, rest >>>= 8)
      nonce[at] = (nonce[at] ?? 0) ^ rest;
    this.#count++;
    return nonce;
  }
}
