/**
 * The transfer format of a blob between agents: pieces in order, each as soon as the sender has it. Each is preceded by
 * a head of 36 bytes: its length (u32, big-endian) and its SHA-256. A head with length 0 means that the sender itself
 * waits for the piece.
 */
import { WeightsError } from './weights-error.ts';

export const HEAD_BYTES = 36;

/** Interval at which a sender without a next piece sends a wait message. */
export const WAITING_EVERY_MS = 1_000;

/**
 * Maximum number of consecutive wait messages. It covers half an hour, which is longer than any reader waits; a sender
 * that sends more of them floods this node.
 */
export const WAITS_MAX = 2_000;

export function pieceHead(length: number, digest: Uint8Array): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32BE(length);
  head.set(digest, 4);
  return head;
}

interface PieceEvents {
  /** Called with the number of received bytes; 0 for a wait message. */
  onProgress(bytes: number): void;
  /** Returns memory for the next piece. Resolves when a buffer is free. */
  memory(): Promise<SharedArrayBuffer>;
  /** Called with a whole piece that is not verified yet. */
  onPiece(memory: SharedArrayBuffer, length: number, digest: Buffer): Promise<void>;
}

/** Splits the received bytes into pieces. @throws WeightsError `wrong` for an invalid length */
export class PieceStreamReader {
  readonly #events: PieceEvents;
  /** Returns the length of the next piece; 0 if there is none. */
  readonly #expected: () => number;
  readonly #head = Buffer.alloc(HEAD_BYTES);
  #headHas = 0;
  /** Number of consecutive wait messages. */
  #waits = 0;
  #memory: SharedArrayBuffer | undefined;
  #target: Uint8Array = new Uint8Array(0);
  #has = 0;

  constructor(expected: () => number, events: PieceEvents) {
    this.#expected = expected;
    this.#events = events;
  }

  /** True if no part of the next piece has arrived. Only then may the stream end. */
  get isBetweenPieces(): boolean {
    return this.#headHas === 0;
  }

  async push(chunk: Uint8Array): Promise<void> {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#headHas < HEAD_BYTES) {
        const take = Math.min(HEAD_BYTES - this.#headHas, rest.length);
        this.#head.set(rest.subarray(0, take), this.#headHas);
        this.#headHas += take;
        rest = rest.subarray(take);
        if (this.#headHas === HEAD_BYTES) await this.#begin();
      } else {
        const take = Math.min(this.#target.length - this.#has, rest.length);
        this.#target.set(rest.subarray(0, take), this.#has);
        this.#has += take;
        rest = rest.subarray(take);
        this.#events.onProgress(take);
        if (this.#has === this.#target.length) await this.#complete();
      }
    }
  }

  async #begin(): Promise<void> {
    const length = this.#head.readUInt32BE();
    if (length === 0) {
      this.#headHas = 0;
      if (++this.#waits > WAITS_MAX) throw new WeightsError('wrong', 'the sender waited too long for the next piece');
      return this.#events.onProgress(0);
    }
    this.#waits = 0;
    const expected = this.#expected();
    if (length !== expected) throw new WeightsError('wrong', `a piece of ${length} bytes instead of ${expected}`);
    this.#memory = await this.#events.memory();
    this.#target = new Uint8Array(this.#memory, 0, length);
    this.#has = 0;
  }

  async #complete(): Promise<void> {
    const memory = this.#memory;
    if (memory === undefined) return;
    this.#headHas = 0;
    this.#memory = undefined;
    await this.#events.onPiece(memory, this.#has, Buffer.from(this.#head.subarray(4)));
  }
}
