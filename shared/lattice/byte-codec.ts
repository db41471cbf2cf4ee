import { LatticeError } from './lattice-error.ts';

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

const U32_MAX = 0xffff_ffff;

/**
 * Writes fields one after another. Everything that is signed or hashed starts with a `label`, so that no signature is
 * valid for another kind of object.
 */
export class ByteWriter {
  #buffer = new Uint8Array(256);
  #length = 0;

  #reserve(bytes: number): void {
    const needed = this.#length + bytes;
    if (needed <= this.#buffer.length) return;
    const larger = new Uint8Array(Math.max(needed, this.#buffer.length * 2));
    larger.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = larger;
  }

  label(thing: string): this {
    return this.bytes(encoder.encode(`otela-${thing}-1\n`));
  }

  byte(value: number): this {
    this.#reserve(1);
    this.#buffer[this.#length++] = value;
    return this;
  }

  u32(value: number): this {
    if (!Number.isInteger(value) || value < 0 || value > U32_MAX)
      throw new LatticeError('malformed', `${value} is not a u32`);
    return this.byte(value >>> 24)
      .byte(value >>> 16)
      .byte(value >>> 8)
      .byte(value);
  }

  /** Unsigned LEB128. */
  varint(value: number): this {
    if (!Number.isSafeInteger(value) || value < 0)
      throw new LatticeError('malformed', `${value} is not a whole number`);
    let rest = value;
    while (rest >= 0x80) {
      this.byte((rest % 128) | 0x80);
      rest = Math.floor(rest / 128);
    }
    return this.byte(rest);
  }

  bytes(bytes: Uint8Array): this {
    this.#reserve(bytes.length);
    this.#buffer.set(bytes, this.#length);
    this.#length += bytes.length;
    return this;
  }

  blob(bytes: Uint8Array): this {
    return this.varint(bytes.length).bytes(bytes);
  }

  text(text: string): this {
    return this.blob(encoder.encode(text));
  }

  /** Returns a copy, which does not keep the larger buffer in memory. */
  done(): Uint8Array {
    return this.#buffer.slice(0, this.#length);
  }
}

/**
 * Reads fields. Throws only LatticeError, never reads beyond the end, and allocates no more bytes than it was given.
 */
export class ByteReader {
  readonly #bytes: Uint8Array;
  #at = 0;

  /**
   * Converts a Buffer (from Node's sockets) to a plain Uint8Array. `slice` must copy, and the `slice` of a Buffer does
   * not.
   */
  constructor(bytes: Uint8Array) {
    this.#bytes = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get rest(): number {
    return this.#bytes.length - this.#at;
  }

  byte(): number {
    const value = this.#bytes[this.#at];
    if (value === undefined) throw new LatticeError('truncated', 'ends inside a field');
    this.#at++;
    return value;
  }

  u32(): number {
    return this.byte() * 0x100_0000 + this.byte() * 0x1_0000 + this.byte() * 0x100 + this.byte();
  }

  /**
   * Reads an unsigned LEB128 number. Accepts only the shortest form, because with two encodings one object would have
   * two hashes.
   */
  varint(): number {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (value > Number.MAX_SAFE_INTEGER) throw new LatticeError('malformed', 'number above 2^53');
      if (byte < 0x80) {
        if (byte === 0 && scale > 1) throw new LatticeError('malformed', 'the number is not in its shortest form');
        return value;
      }
      scale *= 128;
    }
  }

  /** Returns a view, not a copy. */
  bytes(length: number): Uint8Array {
    if (length > this.rest) throw new LatticeError('truncated', 'a length points past the end');
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  blob(maxBytes: number): Uint8Array {
    const length = this.varint();
    if (length > maxBytes)
      throw new LatticeError('too_large', `a field has ${length} bytes, at most ${maxBytes} are allowed`);
    return this.bytes(length);
  }

  text(maxBytes: number): string {
    const bytes = this.blob(maxBytes);
    try {
      return decoder.decode(bytes);
    } catch {
      throw new LatticeError('malformed', 'text is not UTF-8');
    }
  }

  end(): void {
    if (this.rest > 0) throw new LatticeError('malformed', `${this.rest} bytes follow the end`);
  }
}

/** A copy with its own memory, for any kind of view. */
export function copyBytes(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(bytes);
}

const HEX = new TextEncoder().encode('0123456789abcdef');

export function hex(bytes: Uint8Array): string {
  const codes = new Uint8Array(2 * bytes.length);
  bytes.forEach((byte, i) => {
    codes[2 * i] = HEX[byte >> 4] ?? 0;
    codes[2 * i + 1] = HEX[byte & 15] ?? 0;
  });
  return latin1(codes);
}

/**
 * Returns one character per byte. Built in one call, because V8 keeps a string built from single characters as a tree,
 * with 30 times the memory. For at most some 10,000 bytes, because they are the arguments of that call.
 */
export function latin1(bytes: Uint8Array): string {
  // The spread operator would use the array's iterator, which takes ten times as long.
  const text: string = Reflect.apply(String.fromCharCode, undefined, bytes);
  return text;
}
