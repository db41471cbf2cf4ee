/**
 * Turns a clock that may be set back into a clock that never goes back. While the underlying clock is behind this one,
 * no time passes here; after that, time passes as it does there. Without this class, if an operator corrects a clock
 * that is ten minutes fast, windows and leases would stop for ten minutes.
 *
 * This clock starts at the underlying clock's value. So its values are milliseconds since 1970 until the underlying
 * clock is first set back.
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
