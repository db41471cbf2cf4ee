import { WireError } from './wire-error.ts';

/**
 * Smallest grant, as a fraction 1/N of a full window. A smaller one is not sent, so that not every read causes a CREDIT
 * frame.
 */
const GRANTS_PER_WINDOW = 64;

/** A grant of this size is always sent, even if it is less than half of the window's free part. */
const GRANT_BYTES = 256 * 1024;

/**
 * Limits the bytes that the other end may send over one socket, all streams together. Counts the DATA payload that
 * arrived, the payload that readers took, and the payload that was granted.
 */
export class SocketWindow {
  #received: number;
  #consumed: number;
  #limit: number;
  #window: number;

  /** `received` and `limit`: the saved state of a window. All streams had ended when this state was saved. */
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

  /** Number of bytes that the other end may send in total since the socket opened. */
  get limit(): number {
    return this.#limit;
  }

  /** Number of bytes that arrived and that no reader has taken. */
  get buffered(): number {
    return this.#received - this.#consumed;
  }

  /** Fraction of the window that is used by bytes that wait for readers. */
  get pressure(): number {
    return this.buffered / this.#window;
  }

  /** Sets the maximum number of bytes that may wait here. The new window takes effect as bytes are consumed. */
  resize(window: number): void {
    this.#window = window;
  }

  /** Counts bytes that arrived. @throws WireError over_credit */
  accept(bytes: number): void {
    this.#received += bytes;
    if (this.#received > this.#limit)
      throw new WireError(
        'over_credit',
        `more than the socket was granted: ${this.#received} bytes, not ${this.#limit}`,
      );
  }

  /** Call when `bytes` were passed on or discarded. */
  consume(bytes: number): void {
    this.#consumed += bytes;
  }

  /**
   * The credit to send now, if it is large enough for a frame: at least half of the free part of the window, or
   * GRANT_BYTES. It is not half of the whole window, because stalled readers may hold the other half, and then no
   * stream of the socket would get credit again.
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
