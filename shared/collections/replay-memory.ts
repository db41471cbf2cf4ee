/**
 * Remembers the nonces of answered requests until the requests expire. Without it, a gateway that recorded a request
 * could have it answered again.
 */

/**
 * Maximum number of nonces: those of 80 requests a second for 20 minutes. When the memory is full, sealed requests are
 * refused, because a request with a forgotten nonce could be replayed.
 */
const REMEMBERED_MAX = 100_000;

export class ReplayMemory {
  readonly #now: () => number;
  readonly #max: number;
  /** When each nonce is forgotten, in milliseconds since 1970. */
  readonly #until = new Map<string, number>();
  /** A lower bound of the times in #until. */
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

  /** Records a nonce. Returns false if the nonce was used before, or if the memory is full. */
  take(nonce: string, until: number): boolean {
    if (this.#until.has(nonce)) return false;
    if (this.#until.size >= this.#max) this.#sweep();
    if (this.#until.size >= this.#max) return false;
    this.#until.set(nonce, until);
    this.#soonest = Math.min(this.#soonest, until);
    return true;
  }

  /** Call if the request was not answered. It may then be sent again. */
  forget(nonce: string): void {
    this.#until.delete(nonce);
  }

  /** Removes expired nonces. A full memory is searched only when one of them may have expired, not for each request. */
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
