/**
 * Milliseconds that never go back, made from a clock that may. While the clock underneath is set back, no time passes here;
 * afterwards time passes as it does there. Where a window or a lease followed the clock itself, a clock that was ten minutes fast
 * and is set right would freeze it for ten minutes.
 *
 * It starts at what the clock underneath says, so its values are milliseconds since the epoch until that clock is first set back.
 */
export class MonotonicClock {
  readonly #read: () => number;
  #seen: number;
  #now: number;

  /** @param read milliseconds since the epoch, such as `Date.now` */
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
