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
  let hash = FNV_OFFSET;
  for (let at = 0; at < length; at++) hash = Math.imul(hash ^ (bytes[at] ?? 0), FNV_PRIME);
  return hash >>> 0;
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
