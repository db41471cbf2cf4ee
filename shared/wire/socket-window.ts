import { WireError } from './error.ts';

/** A full window is granted anew in no smaller parts than this many, so that a byte read is not a frame sent. */
const GRANTS_PER_WINDOW = 64;

/** Credit worth a frame even where more than this is free. */
const GRANT_BYTES = 256 * 1024;

/**
 * What the other end may send over one socket, over all its streams. Counts the bytes of DATA payload that came, were taken and were
 * granted.
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

  /** Bytes that came and that no reader has taken yet. */
  get buffered(): number {
    return this.#received - this.#consumed;
  }

  /** The part of the window that waits here for readers. */
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

  /** `bytes` went on, or were thrown away. */
  consume(bytes: number): void {
    this.#consumed += bytes;
  }

  /**
   * The credit to send now, if it is worth a frame: at least half of the free part of the window. Half of the whole window would never be
   * free again if stalled readers hold the other half. Then every stream of the socket would stop with them.
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
