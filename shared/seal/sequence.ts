/** Nonces of one key's chunks: the base, XOR how many there were (chunked OHTTP §6; RFC 9180 §5.2). */
import { SealError } from './error.ts';

/** A key whose counter went round would seal two chunks alike; nothing comes near. */
const CHUNKS_MAX = 2 ** 32 - 1;

export class ChunkNonces {
  readonly #base: Uint8Array;
  #count = 0;

  constructor(base: Uint8Array) {
    this.#base = base;
  }

  /** Of the next chunk. @throws SealError too_large */
  next(): Uint8Array<ArrayBuffer> {
    if (this.#count > CHUNKS_MAX) throw new SealError('too_large', 'too many chunks under one key');
    // Byte by byte: a view of its buffer would move these 12 bytes out of the heap, where each is freed for itself.
    const nonce = new Uint8Array(this.#base);
    for (let at = nonce.length - 1, rest = this.#count; rest > 0; at--, rest >>>= 8)
      nonce[at] = (nonce[at] ?? 0) ^ rest;
    this.#count++;
    return nonce;
  }
}
