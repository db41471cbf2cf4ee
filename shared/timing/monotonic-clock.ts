/**
 * Turns a clock that may be set back into one that never goes back. While the underlying clock is behind, no time
 * passes here; afterwards time passes as it does there. If a window or a lease used the clock directly, correcting a
 * clock that is ten minutes fast would freeze it for ten minutes.
 *
 * It starts at the underlying clock's value. So its values are milliseconds since 1970 until that clock is first set
 * back.
 */
export class MonotonicClock {
  readonly #read: () => number;
  #seen: number;
  #now: number;

  /** @param read returns milliseconds since 1970, such as `Date.now` */
  constructor(read: () => number) {
    this.#read = read;
    this.#seen = read();
    this.#now = this.#seen;
  }

  now(): number {
    const read = this.#read();
    this.#now += Math.max(0, read - this.#seen);
    this.#seen = read;
    return this.#now;
  }
}
