/** Messages inside an answer that has started: an error that ended it, or a ping while more data is awaited. */

import { type ApiError, errorBody, inBandError } from '../openai/api-errors.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import { utf8Bytes } from '../seal/portable-bytes.ts';
import { buildFrame, FRAME, FrameCursor } from '../seal/response-frames.ts';

const NOTE = buildFrame(FRAME.note);

export class InBandErrorDetector {
  readonly #endpoint: Endpoint;
  /** Position in a sealed answer, where messages can be inserted only between two frames. */
  readonly #cursor: FrameCursor | undefined;

  constructor(endpoint: Endpoint, sealed: boolean) {
    this.#endpoint = endpoint;
    if (sealed) this.#cursor = new FrameCursor();
  }

  /** The bytes that keep a waiting client's connection alive. */
  get ping(): Uint8Array {
    return this.#cursor === undefined ? this.#endpoint.ping : NOTE;
  }

  /** True if the endpoint's clients skip comments in the event stream other than pings. */
  get takesComments(): boolean {
    return this.#cursor === undefined && this.#endpoint.inBandError !== 'anthropic';
  }

  /** Records bytes of the answer that are sent to the client. */
  pass(bytes: Uint8Array): void {
    this.#cursor?.pass(bytes);
  }

  /**
   * The error as bytes of the answer. Undefined inside a frame of a sealed answer, because the client notices the
   * missing end.
   */
  error(error: ApiError): Uint8Array | undefined {
    if (this.#cursor === undefined) return inBandError(this.#endpoint, error);
    return this.#cursor.atBoundary ? buildFrame(FRAME.note, utf8Bytes(errorBody(error))) : undefined;
  }
}
