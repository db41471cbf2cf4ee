/** Search and text functions on bytes that create no string per chunk. */

const encoder = new TextEncoder();
/** The option keeps a leading U+FEFF. Otherwise `"\uFEFFname"` and `"name"` would be the same model. */
const decoder = new TextDecoder('utf-8', { fatal: false, ignoreBOM: true });

/** U+FEFF in UTF-8, which is a byte order mark if it comes first. */
export const BOM = Uint8Array.of(0xef, 0xbb, 0xbf);

const NO_BYTES = new Uint8Array(0);

export function encodeUtf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Up to this length the loop below takes less time than a call of the decoder. */
const SHORT_TEXT_BYTES = 24;

/** Decodes UTF-8. Invalid sequences become U+FFFD, and a byte order mark is kept. */
export function decodeUtf8(bytes: Uint8Array): string {
  if (bytes.length > SHORT_TEXT_BYTES) return decoder.decode(bytes);
  let text = '';
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] ?? 0;
    if (byte >= 0x80) return decoder.decode(bytes);
    text += String.fromCharCode(byte);
  }
  return text;
}

export function startsWith(bytes: Uint8Array, prefix: Uint8Array, from = 0): boolean {
  if (from + prefix.length > bytes.length) return false;
  for (let i = 0; i < prefix.length; i++) {
    if (bytes[from + i] !== prefix[i]) return false;
  }
  return true;
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && startsWith(a, b);
}

/**
 * Searches for a byte string by Boyer-Moore-Horspool, with one table look-up per needle length. A search by native
 * calls would take ten times as long in JSON, where every seventh byte is a quote and would need its own call.
 */
export class ByteSearch {
  readonly bytes: Uint8Array;
  readonly #skip = new Uint8Array(256);

  /** @param text 1 to 255 ASCII characters */
  constructor(text: string) {
    this.bytes = encodeUtf8(text);
    const last = this.bytes.length - 1;
    this.#skip.fill(this.bytes.length);
    for (let i = 0; i < last; i++) this.#skip[this.bytes[i] ?? 0] = last - i;
  }

  /** Offset of the first occurrence at or after `from`, or -1. */
  indexIn(hay: Uint8Array, from = 0): number {
    const needle = this.bytes;
    const skip = this.#skip;
    const last = needle.length - 1;
    const lastByte = needle[last];
    let end = from + last;
    while (end < hay.length) {
      const byte = hay[end] ?? 0;
      if (byte === lastByte && startsWith(hay, needle, end - last)) return end - last;
      end += skip[byte] ?? 1;
    }
    return -1;
  }
}

/**
 * Collects bytes of several chunks up to a limit. They are copied, so that a few bytes do not keep their chunk in
 * memory.
 */
export class ByteBuffer {
  readonly #limit: number;
  #buffer = NO_BYTES;
  #length = 0;
  #dropped = 0;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  /** Number of bytes pushed since the last `clear`, including those beyond the limit. */
  get offered(): number {
    return this.#length + this.#dropped;
  }

  /** True if more bytes than the limit were pushed. `bytes()` is then only the beginning. */
  get overflowed(): boolean {
    return this.#dropped > 0;
  }

  add(bytes: Uint8Array): void {
    const room = this.#limit - this.#length;
    const taken = bytes.length > room ? bytes.subarray(0, room) : bytes;
    this.#dropped += bytes.length - taken.length;
    const needed = this.#length + taken.length;
    if (needed > this.#buffer.length) {
      const grown = new Uint8Array(Math.min(this.#limit, Math.max(needed, this.#buffer.length * 2, 256)));
      grown.set(this.#buffer.subarray(0, this.#length));
      this.#buffer = grown;
    }
    this.#buffer.set(taken, this.#length);
    this.#length = needed;
  }

  /** A view that is valid until `clear`. `take` returns bytes that stay valid. */
  bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }

  /** Returns the bytes, which then belong to the caller, and starts again with none. */
  take(): Uint8Array {
    const taken = this.bytes();
    this.clear();
    this.#buffer = NO_BYTES;
    return taken;
  }

  clear(): void {
    this.#length = 0;
    this.#dropped = 0;
  }
}
