/** What is told inside an answer that is on its way: why it broke off, or that it is still to come. */
import type { Endpoint } from '../openai/endpoints.ts';
import { type ApiError, errorBody, inBandError } from '../openai/errors.ts';
import { utf8 } from '../seal/bytes.ts';
import { FRAME, FrameCursor, frame } from '../seal/response-frames.ts';

const NOTE = frame(FRAME.note);

export class InBand {
  readonly #endpoint: Endpoint;
  /** Where a sealed answer stands: between two of its frames alone is something said. */
  readonly #cursor: FrameCursor | undefined;

  constructor(endpoint: Endpoint, sealed: boolean) {
    this.#endpoint = endpoint;
    if (sealed) this.#cursor = new FrameCursor();
  }

  /** Written while a client waits. */
  get ping(): Uint8Array {
    return this.#cursor === undefined ? this.#endpoint.ping : NOTE;
  }

  /** Its clients skip comments that say more than a ping. */
  get takesComments(): boolean {
    return this.#cursor === undefined && this.#endpoint.inBandError !== 'anthropic';
  }

  /** Bytes of the answer that go out. */
  pass(bytes: Uint8Array): void {
    this.#cursor?.pass(bytes);
  }

  /** Undefined inside a frame of a sealed answer: its client sees that the end is missing. */
  error(error: ApiError): Uint8Array | undefined {
    if (this.#cursor === undefined) return inBandError(this.#endpoint, error);
    return this.#cursor.atBoundary ? frame(FRAME.note, utf8(errorBody(error))) : undefined;
  }
}
