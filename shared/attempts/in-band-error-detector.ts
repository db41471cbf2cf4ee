/**
 * Builds messages inside an answer that has started: an error that ended the answer, or a ping while the client waits
 * for more data.
 */

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

  /** The bytes that keep the connection of a waiting client alive. */
  get ping(): Uint8Array {
    return this.#cursor === undefined ? this.#endpoint.ping : NOTE;
  }

  /** True if the endpoint's clients skip all comments in an event stream, not only pings. */
  get takesComments(): boolean {
    return this.#cursor === undefined && this.#endpoint.inBandError !== 'anthropic';
  }

  /** Records bytes of the answer that are sent to the client. */
  pass(bytes: Uint8Array): void {
    this.#cursor?.pass(bytes);
  }

  /**
   * The error as bytes that follow the answer. Undefined inside a frame of a sealed answer: nothing can be inserted
   * there, and the client notices the missing end.
   */
  error(error: ApiError): Uint8Array | undefined {
    if (this.#cursor === undefined) return inBandError(this.#endpoint, error);
    return this.#cursor.atBoundary ? buildFrame(FRAME.note, utf8Bytes(errorBody(error))) : undefined;
  }
}
