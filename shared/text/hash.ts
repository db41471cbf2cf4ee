/** The start value of FNV-1a for 32 bits. */
const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/**
 * FNV-1a over the code units of a text, 32 bits without sign. It is not cryptographic: the author of a text can choose
 * its hash. `start` continues an earlier hash.
 */
export function fnv1a(text: string, start = FNV_OFFSET): number {
  let hash = start;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), FNV_PRIME);
  return hash >>> 0;
}

/** Like `fnv1a`, over the first `length` bytes. */
export function fnv1aOfBytes(bytes: Uint8Array, length: number): number {
  return fnv1aOfBeginnings(bytes, [length])[0] ?? FNV_OFFSET;
}

/** Hashes of several beginnings, in one pass. @param lengths ascending; those above the number of bytes are left out */
export function fnv1aOfBeginnings(bytes: Uint8Array, lengths: readonly number[]): number[] {
  const hashes: number[] = [];
  let hash = FNV_OFFSET;
  let at = 0;
  for (const length of lengths) {
    if (length > bytes.length) break;
    for (; at < length; at++) hash = Math.imul(hash ^ (bytes[at] ?? 0), FNV_PRIME);
    hashes.push(hash >>> 0);
  }
  return hashes;
}

/**
 * The finalizer of MurmurHash3: every bit of `hash` flips half of the bits of the result. Without it, texts that differ
 * only in their last character have hashes in the same order.
 */
export function mixBits(hash: number): number {
  let mixed = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
