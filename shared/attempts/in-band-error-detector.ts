/** Messages inside an answer that has started: why it broke off, or that data is still to come. */

import { type ApiError, errorBody, inBandError } from '../openai/api-errors.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import { utf8Bytes } from '../seal/plain-bytes.ts';
import { buildFrame, FRAME, FrameCursor } from '../seal/response-frames.ts';

const NOTE = buildFrame(FRAME.note);

export class InBandErrorDetector {
  readonly #endpoint: Endpoint;
  /** Position in a sealed answer: messages can only be inserted between two of its frames. */
  readonly #cursor: FrameCursor | undefined;

  constructor(endpoint: Endpoint, sealed: boolean) {
    this.#endpoint = endpoint;
    if (sealed) this.#cursor = new FrameCursor();
  }

  /** Sent while a client waits. */
  get ping(): Uint8Array {
    return this.#cursor === undefined ? this.#endpoint.ping : NOTE;
  }

  /** The endpoint's clients skip comments other than a ping. */
  get takesComments(): boolean {
    return this.#cursor === undefined && this.#endpoint.inBandError !== 'anthropic';
  }

  /** Bytes of the answer that are sent to the client. */
  pass(bytes: Uint8Array): void {
    this.#cursor?.pass(bytes);
  }

  /** Undefined inside a frame of a sealed answer; the client notices that the end is missing. */
  error(error: ApiError): Uint8Array | undefined {
    if (this.#cursor === undefined) return inBandError(this.#endpoint, error);
    return this.#cursor.atBoundary ? buildFrame(FRAME.note, utf8Bytes(errorBody(error))) : undefined;
  }
}
