/** A token bucket: so much at once, so much per second. */
export class Bucket {
  readonly #perSecond: number;
  readonly #burst: number;
  #tokens: number;
  #at: number;

  constructor(perSecond: number, burst: number, now: number) {
    this.#perSecond = perSecond;
    this.#burst = burst;
    this.#tokens = burst;
    this.#at = now;
  }

  /** @returns whether there was as much */
  take(amount: number, now: number): boolean {
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#at) / 1000) * this.#perSecond);
    this.#at = now;
    if (this.#tokens < amount) return false;
    this.#tokens -= amount;
    return true;
  }
}
