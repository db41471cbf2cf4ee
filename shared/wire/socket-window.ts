import { WireError } from './wire-error.ts';

/** Smallest grant, as a fraction 1/N of a full window, so that not every read causes a CREDIT frame. */
const GRANTS_PER_WINDOW = 64;

/** A grant of this size is sent even if the free part of the window is larger. */
const GRANT_BYTES = 256 * 1024;

/**
 * Limits the bytes that the other end may send over one socket, all streams together. Counts the DATA payload that
 * arrived, that was taken, and that was granted.
 */
export class SocketWindow {
  #received: number;
  #consumed: number;
  #limit: number;
  #window: number;

  /** `received` and `limit`: the saved state of a window. All streams had ended when it was saved. */
  constructor(window: number, received = 0, limit = window) {
    this.#window = window;
    this.#received = received;
    this.#consumed = received;
    this.#limit = limit;
  }

  /** Number of bytes that arrived since the socket opened. */
  get received(): number {
    return this.#received;
  }

  /** The other end may send up to this byte, counted since the socket opened. */
  get limit(): number {
    return this.#limit;
  }

  /** Number of bytes that arrived and were not taken by a reader. */
  get buffered(): number {
    return this.#received - this.#consumed;
  }

  /** The fraction of the window that waits here for readers. */
  get pressure(): number {
    return this.buffered / this.#window;
  }

  /** Sets the maximum number of bytes that may wait here. Takes effect as bytes are consumed. */
  resize(window: number): void {
    this.#window = window;
  }

  /** Counts bytes that arrived. @throws WireError over_credit */
  accept(bytes: number): void {
    this.#received += bytes;
    if (this.#received > this.#limit) throw new WireError('over_credit', 'more than the socket was granted');
  }

  /** `bytes` were passed on or discarded. */
  consume(bytes: number): void {
    this.#consumed += bytes;
  }

  /**
   * The credit to send now, if it is large enough for a frame: at least half of the free part of the window. Half of
   * the whole window would never be free while stalled readers hold the other half, and then every stream of the socket
   * would stop.
   */
  credit(): { consumed: number; window: number } | undefined {
    const limit = this.#consumed + this.#window;
    const free = this.#window - this.buffered;
    if (limit - this.#limit < Math.max(Math.min(free / 2, GRANT_BYTES), this.#window / GRANTS_PER_WINDOW))
      return undefined;
    this.#limit = limit;
    return { consumed: this.#consumed, window: this.#window };
  }
}
