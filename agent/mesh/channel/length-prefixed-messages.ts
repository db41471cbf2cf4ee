import { WireError } from '../../../shared/wire/wire-error.ts';

/** Number of bytes that encode the length before each message, big-endian. */
export const LENGTH_BYTES = 4;

/** Puts the length before the message in one buffer. Two writes would be two TLS records. */
export function withLengthPrefix(message: Uint8Array): Buffer {
  const out = Buffer.allocUnsafe(LENGTH_BYTES + message.length);
  out.writeUInt32BE(message.length);
  out.set(message, LENGTH_BYTES);
  return out;
}

/** Splits a byte stream into messages. Holds at most the received part of one message. */
export class MessageReader {
  readonly #max: number;
  /** Parts of an incomplete message: at most `max` bytes and the length prefix. */
  #parts: Uint8Array[] = [];
  #bufferedBytes = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /**
   * Calls `each` with every message that is complete now. The message may be a view of `chunk`.
   * @throws WireError for a length of 0 or above the maximum: the rest of the stream cannot be read
   */
  push(chunk: Uint8Array, each: (message: Uint8Array) => void): void {
    let rest = chunk;
    while (rest.length > 0) {
      const messageLength = this.#messageLength(rest);
      if (messageLength === undefined || this.#bufferedBytes + rest.length < messageLength) return this.#keep(rest);
      const cut = messageLength - this.#bufferedBytes;
      const whole = this.#bufferedBytes === 0 ? rest.subarray(0, cut) : this.#join(rest.subarray(0, cut));
      rest = rest.subarray(cut);
      each(whole.subarray(LENGTH_BYTES));
    }
  }

  /** Length of the current message with its prefix; undefined while the prefix is incomplete. */
  #messageLength(rest: Uint8Array): number | undefined {
    let length = 0;
    for (let i = 0; i < LENGTH_BYTES; i++) {
      const byte = this.#at(i, rest);
      if (byte === undefined) return undefined;
      length = length * 256 + byte;
    }
    if (length === 0 || length > this.#max) throw new WireError('too_large', `message of ${length} bytes`);
    return LENGTH_BYTES + length;
  }

  /** Byte `i` of the current message. */
  #at(i: number, rest: Uint8Array): number | undefined {
    let at = i;
    for (const part of this.#parts) {
      if (at < part.length) return part[at];
      at -= part.length;
    }
    return rest[at];
  }

  #keep(rest: Uint8Array): void {
    // Copy small pieces into one buffer. A view would keep the whole read buffer in memory, and a message that arrives
    // byte by byte would become a long list of arrays.
    const last = this.#parts.at(-1);
    if (last !== undefined && last.length + rest.length <= 4096) {
      this.#parts[this.#parts.length - 1] = Buffer.concat([last, rest]);
    } else {
      this.#parts.push(new Uint8Array(rest));
    }
    this.#bufferedBytes += rest.length;
  }

  #join(end: Uint8Array): Uint8Array {
    const whole = Buffer.concat([...this.#parts, end]);
    this.#parts = [];
    this.#bufferedBytes = 0;
    return whole;
  }
}
