/**
 * A sealed answer: frames `type 1 ‖ varint length ‖ payload`. The gateway in between may insert NOTEs, and reads only
 * the lengths of the other frames.
 */

import { CHUNK_MAX_BYTES } from './hpke-suite.ts';
import { concatBytes } from './plain-bytes.ts';
import { SealError } from './seal-error.ts';
import { readVarint, VARINT_MAX_BYTES, varintBytes, writeVarint } from './varint.ts';

export const FRAME = {
  /** From the gateway, in clear and unsigned: empty, or an error's JSON. */
  note: 0,
  /** `kid 8 ‖ response nonce 32`: begins a node's part. */
  segment: 1,
  chunk: 2,
  /** The last chunk. An answer without it was cut off. */
  final: 3,
} as const;

type FrameType = (typeof FRAME)[keyof typeof FRAME];

export interface ResponseFrame {
  type: FrameType;
  payload: Uint8Array;
}

const TYPES: ReadonlySet<number> = new Set(Object.values(FRAME));
const isType = (byte: number): byte is FrameType => TYPES.has(byte);

/** Longest frame: an error's JSON is shorter than a chunk. */
const SEAL_FRAME_MAX_BYTES = CHUNK_MAX_BYTES;

export function buildFrame(type: FrameType, ...payload: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const length = payload.reduce((sum, part) => sum + part.length, 0);
  const bytes = new Uint8Array(frameBytes(length));
  writeSealFrame(bytes, type, payload);
  return bytes;
}

/** @param bytes at least as long as the frame. @throws SealError too_large */
export function writeSealFrame(bytes: Uint8Array, type: FrameType, payload: readonly Uint8Array[]): void {
  const length = payload.reduce((sum, part) => sum + part.length, 0);
  if (length > SEAL_FRAME_MAX_BYTES) throw new SealError('too_large', `a frame of ${length} bytes`);
  bytes[0] = type;
  let at = 1 + writeVarint(bytes, 1, length);
  for (const part of payload) {
    bytes.set(part, at);
    at += part.length;
  }
}

/** Size of a frame with its type and length. */
export function frameBytes(payloadBytes: number): number {
  return 1 + varintBytes(payloadBytes) + payloadBytes;
}

/** Splits arbitrarily cut pieces into frames. Holds at most one frame. */
export class FrameSplitter {
  #rest: Uint8Array = new Uint8Array(0);

  /** No partial frame is held. */
  get atBoundary(): boolean {
    return this.#rest.length === 0;
  }

  /** The frames that `piece` completes; payloads may be views of it. @throws SealError malformed, too_large */
  push(piece: Uint8Array): ResponseFrame[] {
    const bytes = this.#rest.length === 0 ? piece : concatBytes(this.#rest, piece);
    const frames: ResponseFrame[] = [];
    let at = 0;
    for (;;) {
      const head = readHead(bytes, at);
      if (head === undefined || head.end + head.length > bytes.length) break;
      at = head.end + head.length;
      frames.push({ type: head.type, payload: bytes.subarray(head.end, at) });
    }
    this.#rest = bytes.slice(at);
    return frames;
  }
}

function readHead(bytes: Uint8Array, at: number): { type: FrameType; end: number; length: number } | undefined {
  const type = bytes[at];
  if (type === undefined) return undefined;
  if (!isType(type)) throw new SealError('malformed', `no frame has the type ${type}`);
  const length = readVarint(bytes, at + 1);
  if (length === undefined) return undefined;
  if (length.value > SEAL_FRAME_MAX_BYTES) throw new SealError('too_large', `a frame of ${length.value} bytes`);
  return { type, end: length.end, length: length.value };
}

/** Tracks the frame boundaries of a stream, for a gateway that passes it on and may have to insert a message. */
export class FrameCursor {
  /** Bytes of the current payload still to come. */
  #remaining = 0;
  /** The current frame's head, as far as received. */
  readonly #head = new Uint8Array(1 + VARINT_MAX_BYTES);
  #headBytes = 0;
  /** The data is not framed, so nothing can be inserted any more. */
  #lost = false;

  get atBoundary(): boolean {
    return !this.#lost && this.#remaining === 0 && this.#headBytes === 0;
  }

  /** Never throws: the client judges the data. */
  pass(piece: Uint8Array): void {
    for (let at = 0; at < piece.length && !this.#lost; ) {
      if (this.#remaining > 0) {
        const skipped = Math.min(this.#remaining, piece.length - at);
        this.#remaining -= skipped;
        at += skipped;
        continue;
      }
      this.#head[this.#headBytes++] = piece[at++] ?? 0;
      this.#read();
    }
  }

  #read(): void {
    try {
      const head = readHead(this.#head.subarray(0, this.#headBytes), 0);
      if (head === undefined) return;
      this.#remaining = head.length;
      this.#headBytes = 0;
    } catch {
      this.#lost = true;
    }
  }
}
