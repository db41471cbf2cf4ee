import { WireError } from './wire-error.ts';

const decoder = new TextDecoder();

/**
 * Reads the primitive values of frames from one message. Never reads beyond the message, and never allocates more bytes
 * than the message has.
 */
export class FrameReader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** Position in the message: number of bytes read so far. */
  get at(): number {
    return this.#at;
  }

  get done(): boolean {
    return this.#at >= this.#bytes.length;
  }

  byte(): number {
    const value = this.#bytes[this.#at];
    if (value === undefined) throw new WireError('truncated', 'message ends inside a frame');
    this.#at++;
    return value;
  }

  /**
   * Reads an unsigned LEB128 number up to 2^53 - 1. Only the shortest form is accepted, so that a frame has only one
   * encoding.
   */
  varint(): number {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (value > Number.MAX_SAFE_INTEGER) throw new WireError('bad_frame', 'number above 2^53');
      if (byte < 0x80) {
        if (byte === 0 && scale > 1) throw new WireError('bad_frame', 'the number is not in its shortest form');
        return value;
      }
      scale *= 128;
    }
  }

  /** Returns a view of `length` bytes, not a copy. */
  bytes(length: number): Uint8Array {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new WireError('truncated', 'a length points past the message');
    const view = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return view;
  }

  blob(maxBytes: number): Uint8Array {
    const length = this.varint();
    if (length > maxBytes)
      throw new WireError('too_large', `a field has ${length} bytes, at most ${maxBytes} are allowed`);
    return this.bytes(length);
  }

  /**
   * Reads a blob into its own memory. A `slice` of a Node `Buffer` would be a view and keep the whole message in
   * memory.
   */
  copy(maxBytes: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.blob(maxBytes));
  }

  text(maxBytes: number): string {
    return decoder.decode(this.blob(maxBytes));
  }
}
