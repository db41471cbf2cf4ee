/**
 * Writes a client's messages as WebSocket frames. `ws` masks byte by byte into new memory, which takes a quarter of an
 * agent's time for a large body.
 */
import { randomFillSync } from 'node:crypto';

/**
 * Sizes of reused buffers: one for small frames, and one for larger frames. Frames above the larger size are rare and
 * get new memory.
 */
const SMALL_BYTES = 16 * 1024;
const LARGE_BYTES = 384 * 1024;
/**
 * Number of buffers kept of each size. At most this many are in use, because a socket with more than 256 KiB counts as
 * busy.
 */
const BUFFERS_PER_SIZE = 4;

/** Offset of the payload: after the longest header (14 bytes, RFC 6455 §5.2), aligned to a word. */
const PAYLOAD_AT = 16;
const FINAL_BINARY = 0x82;
const MASKED = 0x80;

const keys = new Int32Array(1024);
let nextKey = keys.length;

/** An unpredictable masking key, as RFC 6455 §5.3 requires. */
function newKey(): number {
  if (nextKey === keys.length) {
    randomFillSync(keys);
    nextKey = 0;
  }
  return keys[nextKey++] ?? 0;
}

/** Writes frames into memory that is reused after `release` is called. */
export class MaskedFrameWriter {
  readonly #small: Buffer[] = [];
  readonly #large: Buffer[] = [];

  /** One final binary frame with a copy of the message. Call `release` when the frame is no longer read. */
  make(message: Uint8Array): { frame: Buffer; release: () => void } {
    const { length } = message;
    const needed = PAYLOAD_AT + length + 3;
    const free = needed <= SMALL_BYTES ? this.#small : this.#large;
    const memory = this.#take(free, needed);
    memory.set(message, PAYLOAD_AT);
    const key = newKey();
    const words = new Int32Array(memory.buffer, memory.byteOffset + PAYLOAD_AT, (length + 3) >> 2);
    for (let n = 0; n < words.length; n++) words[n] = (words[n] ?? 0) ^ key;
    const keyAt = PAYLOAD_AT - 4;
    new Int32Array(memory.buffer, memory.byteOffset + keyAt, 1)[0] = key;
    const frame = memory.subarray(writeHead(memory, keyAt, length), PAYLOAD_AT + length);
    return { frame, release: () => this.#give(free, memory) };
  }

  #take(free: Buffer[], needed: number): Buffer {
    const usual = free === this.#small ? SMALL_BYTES : LARGE_BYTES;
    if (needed > usual) return Buffer.allocUnsafeSlow(needed);
    return free.pop() ?? Buffer.allocUnsafeSlow(usual);
  }

  #give(free: Buffer[], memory: Buffer): void {
    if (memory.length <= LARGE_BYTES && free.length < BUFFERS_PER_SIZE) free.push(memory);
  }
}

/** Writes the header in front of the key. Returns the header's offset. */
function writeHead(memory: Buffer, keyAt: number, length: number): number {
  let at = keyAt;
  let short = length;
  if (length > 0xffff) {
    at = memory.writeUIntBE(length, keyAt - 6, 6) - 8;
    memory.writeUInt16BE(0, at);
    short = 127;
  } else if (length > 125) {
    at = memory.writeUInt16BE(length, keyAt - 2) - 2;
    short = 126;
  }
  memory[at - 1] = MASKED | short;
  memory[at - 2] = FINAL_BINARY;
  return at - 2;
}
