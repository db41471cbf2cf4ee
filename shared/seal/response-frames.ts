/**
 * Frames of a sealed answer: `type 1 ‖ varint length ‖ payload`. The gateway may insert NOTE frames, and reads only the
 * lengths of all other frames.
 */

import { CHUNK_MAX_BYTES } from './hpke-suite.ts';
import { concatBytes } from './portable-bytes.ts';
import { SealError } from './seal-error.ts';
import { readVarint, VARINT_MAX_BYTES, varintBytes, writeVarint } from './varint.ts';

export const FRAME = {
  /** Inserted by the gateway, neither encrypted nor signed. The payload is empty, or an error as JSON. */
  note: 0,
  /** Begins the part of one node. Payload: `kid 8 ‖ response nonce 32`. */
  segment: 1,
  chunk: 2,
  /** The last chunk. If it is missing, the answer is incomplete. */
  final: 3,
} as const;

type FrameType = (typeof FRAME)[keyof typeof FRAME];

export interface ResponseFrame {
  type: FrameType;
  payload: Uint8Array;
}

const TYPES: ReadonlySet<number> = new Set(Object.values(FRAME));
const isType = (byte: number): byte is FrameType => TYPES.has(byte);

/** Maximum size of a frame's payload. The JSON of an error is shorter than a chunk. */
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

/** Size of a whole frame, type and length included. */
export function frameBytes(payloadBytes: number): number {
  return 1 + varintBytes(payloadBytes) + payloadBytes;
}

/** Splits a byte stream into frames, even if a piece ends inside a frame. Keeps at most one incomplete frame. */
export class FrameSplitter {
  #rest: Uint8Array = new Uint8Array(0);

  /** True if no incomplete frame is kept. */
  get atBoundary(): boolean {
    return this.#rest.length === 0;
  }

  /**
   * Returns the frames that `piece` completes; their payloads may be views of it.
   * @throws SealError malformed, too_large
   */
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

/**
 * Follows the frame boundaries of a stream, for a gateway that passes the stream on and may have to insert a message.
 */
export class FrameCursor {
  /** Bytes of the current payload that have not passed yet. */
  #remaining = 0;
  /** The bytes of the current frame's head that have passed. */
  readonly #head = new Uint8Array(1 + VARINT_MAX_BYTES);
  #headBytes = 0;
  /** True if the data does not consist of frames, so that no message can be inserted. */
  #lost = false;

  get atBoundary(): boolean {
    return !this.#lost && this.#remaining === 0 && this.#headBytes === 0;
  }

  /** Advances over `piece`. Never throws, because the client validates the data. */
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
