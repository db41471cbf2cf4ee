import { DATA_MAX_BYTES, MESSAGE_TARGET_BYTES } from './protocol-constants.ts';

const encoder = new TextEncoder();

/**
 * Buffer size for a message that large bodies fill. It may exceed MESSAGE_TARGET_BYTES by the last frame, and the
 * frames' heads take some bytes.
 */
const FULL_MESSAGE_BYTES = MESSAGE_TARGET_BYTES + DATA_MAX_BYTES + 4 * 1024;

/**
 * Builds one message. `take` returns the message's bytes and continues with a new buffer. `again` continues with the
 * same buffer.
 */
export class FrameWriter {
  #buffer = new Uint8Array(512);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  #reserve(bytes: number): void {
    const needed = this.#length + bytes;
    if (needed <= this.#buffer.length) return;
    // A message with more than one large frame will probably become full, so its buffer gets the full size now.
    // Doubling the buffer step by step would copy the bytes twice, and clear more memory.
    const willBeFull = needed > DATA_MAX_BYTES * 1.5 && needed <= FULL_MESSAGE_BYTES;
    const next = willBeFull ? FULL_MESSAGE_BYTES : this.#buffer.length * 2;
    const larger = new Uint8Array(Math.max(needed, next));
    larger.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = larger;
  }

  byte(value: number): void {
    this.#reserve(1);
    this.#buffer[this.#length++] = value;
  }

  varint(value: number): void {
    this.#reserve(8);
    let rest = value;
    while (rest >= 0x80) {
      this.#buffer[this.#length++] = (rest % 128) | 0x80;
      rest = Math.floor(rest / 128);
    }
    this.#buffer[this.#length++] = rest;
  }

  bytes(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#buffer.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  blob(bytes: Uint8Array): void {
    this.varint(bytes.length);
    this.bytes(bytes);
  }

  text(text: string): void {
    this.blob(encoder.encode(text));
  }

  /** The bytes written so far, as a view that is valid until the next write. */
  get message(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }

  again(): void {
    this.#length = 0;
  }

  take(): Uint8Array {
    const { message } = this;
    this.#buffer = new Uint8Array(512);
    this.#length = 0;
    return message;
  }
}
