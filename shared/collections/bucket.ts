/** A token bucket: `perSecond` on average, `burst` at once. */
export class Bucket {
  readonly #perSecond: number;
  readonly #burst: number;
  #left: number;
  /** Milliseconds, of whatever clock the takers go by. */
  #at: number;

  constructor(perSecond: number, burst: number, now: number) {
    this.#perSecond = perSecond;
    this.#burst = burst;
    this.#left = burst;
    this.#at = now;
  }

  /** False where there is not enough left; then nothing is taken. */
  take(amount: number, now: number): boolean {
    const passed = Math.max(0, now - this.#at); // a clock that was set back takes nothing away
    this.#left = Math.min(this.#burst, this.#left + (passed / 1000) * this.#perSecond);
    this.#at = now;
    if (this.#left < amount) return false;
    this.#left -= amount;
    return true;
  }

  /** Milliseconds from the last `take` until `amount` may be taken, if nothing else is; Infinity above the burst. */
  waitMs(amount: number): number {
    if (amount > this.#burst) return Number.POSITIVE_INFINITY;
    return (Math.max(0, amount - this.#left) / this.#perSecond) * 1000;
  }
}
