/**
 * Nonces of answered requests, until the requests expire: a gateway that recorded one cannot have it answered again.
 */

/**
 * 20 minutes of 80 requests a second. When full, sealed requests are refused, because a forgotten one could be
 * replayed.
 */
const REMEMBERED_MAX = 100_000;

export class ReplayMemory {
  readonly #now: () => number;
  readonly #max: number;
  /** Nonce → when it is forgotten, in milliseconds since the epoch. */
  readonly #until = new Map<string, number>();
  /** A lower bound of these times. */
  #soonest = Number.POSITIVE_INFINITY;

  constructor(now: () => number, max = REMEMBERED_MAX) {
    this.#now = now;
    this.#max = max;
  }

  get size(): number {
    return this.#until.size;
  }

  has(nonce: string): boolean {
    return this.#until.has(nonce);
  }

  /** Returns false if the nonce was used before, or if there is no room. */
  take(nonce: string, until: number): boolean {
    if (this.#until.has(nonce)) return false;
    if (this.#until.size >= this.#max) this.#sweep();
    if (this.#until.size >= this.#max) return false;
    this.#until.set(nonce, until);
    this.#soonest = Math.min(this.#soonest, until);
    return true;
  }

  /** The request was not answered, so it may be sent again. */
  forget(nonce: string): void {
    this.#until.delete(nonce);
  }

  /** A full memory is not searched for each request, but only when there is something to forget. */
  #sweep(): void {
    const now = this.#now();
    if (now < this.#soonest) return;
    this.#soonest = Number.POSITIVE_INFINITY;
    for (const [nonce, until] of this.#until) {
      if (until <= now) this.#until.delete(nonce);
      else this.#soonest = Math.min(this.#soonest, until);
    }
  }
}
