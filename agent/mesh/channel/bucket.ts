/** A token bucket: `perSecond` on average, `burst` at once. */
export class Bucket {
  readonly #perMs: number;
  readonly #burst: number;
  #left: number;
  #at: number;

  constructor(perSecond: number, burst: number, now: number) {
    this.#perMs = perSecond / 1000;
    this.#burst = burst;
    this.#left = burst;
    this.#at = now;
  }

  /** False where there is not enough left; then nothing is taken. */
  take(amount: number, now: number): boolean {
    this.#left = Math.min(this.#burst, this.#left + Math.max(0, now - this.#at) * this.#perMs);
    this.#at = now;
    if (this.#left < amount) return false;
    this.#left -= amount;
    return true;
  }
}
