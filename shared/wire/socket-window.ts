import { WireError } from './wire-error.ts';

/** Minimum fraction of a full window per grant, so that not every byte read causes a frame. */
const GRANTS_PER_WINDOW = 64;

/** Credit of this size is sent even if more is free. */
const GRANT_BYTES = 256 * 1024;

/**
 * What the other end may send over one socket, all its streams together. Counts the DATA payload that arrived, was
 * taken and was granted.
 */
export class SocketWindow {
  #received: number;
  #consumed: number;
  #limit: number;
  #window: number;

  /** `received` and `limit` continue a window whose streams had all ended when it was saved. */
  constructor(window: number, received = 0, limit = window) {
    this.#window = window;
    this.#received = received;
    this.#consumed = received;
    this.#limit = limit;
  }

  /** Since the socket opened. */
  get received(): number {
    return this.#received;
  }

  /** The other end may send up to this byte, counted since the socket opened. */
  get limit(): number {
    return this.#limit;
  }

  /** Bytes that arrived and that no reader has taken. */
  get buffered(): number {
    return this.#received - this.#consumed;
  }

  /** The fraction of the window that waits here for readers. */
  get pressure(): number {
    return this.buffered / this.#window;
  }

  /** The most that may wait here. Takes effect as bytes are consumed. */
  resize(window: number): void {
    this.#window = window;
  }

  /** @throws WireError over_credit */
  accept(bytes: number): void {
    this.#received += bytes;
    if (this.#received > this.#limit) throw new WireError('over_credit', 'more than the socket was granted');
  }

  /** `bytes` were passed on or discarded. */
  consume(bytes: number): void {
    this.#consumed += bytes;
  }

  /**
   * The credit to send now, if it is worth a frame: at least half of the free part of the window. Half of the whole
   * window would never be free if stalled readers hold the other half, and every stream of the socket would stop with
   * them.
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
