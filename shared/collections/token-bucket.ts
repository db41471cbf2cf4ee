/** A token bucket: `perSecond` tokens on average, and up to `burst` at a time. */
export class TokenBucket {
  readonly #perSecond: number;
  readonly #burst: number;
  #remaining: number;
  /** When tokens were last added, in milliseconds of the callers' clock. */
  #at: number;

  constructor(perSecond: number, burst: number, now: number) {
    this.#perSecond = perSecond;
    this.#burst = burst;
    this.#remaining = burst;
    this.#at = now;
  }

  /** Takes `amount` tokens. If there are not enough, takes none and returns false. */
  take(amount: number, now: number): boolean {
    const passed = Math.max(0, now - this.#at); // A clock that was set back takes no tokens away.
    this.#remaining = Math.min(this.#burst, this.#remaining + (passed / 1000) * this.#perSecond);
    this.#at = now;
    if (this.#remaining < amount) return false;
    this.#remaining -= amount;
    return true;
  }

  /**
   * Milliseconds after the last `take` until `amount` is available if nothing else is taken. Infinity if `amount` is
   * larger than the burst.
   */
  waitMs(amount: number): number {
    if (amount > this.#burst) return Number.POSITIVE_INFINITY;
    return (Math.max(0, amount - this.#remaining) / this.#perSecond) * 1000;
  }
}
