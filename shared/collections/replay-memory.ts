/** Requests that were answered, by their nonces, until they count no more: a gateway that recorded one cannot have it answered again. */

/** 20 minutes of 80 requests a second. Full: nothing sealed is taken, since what would be forgotten could be repeated. */
const REMEMBERED_MAX = 100_000;

export class ReplayMemory {
  readonly #now: () => number;
  readonly #max: number;
  /** Milliseconds since the epoch until which each is remembered. */
  readonly #until = new Map<string, number>();
  /** The least of them, or less. */
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

  /** False where it came before, or where there is no room. */
  take(nonce: string, until: number): boolean {
    if (this.#until.has(nonce)) return false;
    if (this.#until.size >= this.#max) this.#sweep();
    if (this.#until.size >= this.#max) return false;
    this.#until.set(nonce, until);
    this.#soonest = Math.min(this.#soonest, until);
    return true;
  }

  /** It had no answer: it may come again. */
  forget(nonce: string): void {
    this.#until.delete(nonce);
  }

  /** A full memory is not gone through by each request that comes, but once there is something to forget. */
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
