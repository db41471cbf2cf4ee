/**
 * A time limit for answers that follows how long recent answers took, as TCP's retransmission timer does (RFC 6298).
 * The limit for a slow but healthy peer grows from its first slow answer on; for a fast peer it stays at `leastMs`.
 */
export interface TimeoutBounds {
  /** For a fast peer. */
  leastMs: number;
  /** For an unknown peer; default `leastMs`. */
  firstMs?: number;
  /** Upper bound, so that a peer that is gone is always detected. */
  mostMs: number;
}

export class AdaptiveTimeout {
  readonly #bounds: TimeoutBounds;
  /** Smoothed duration of an answer, and its variation; undefined: none was measured. */
  #smoothed: number | undefined;
  #variation = 0;
  /** Doubles with each expired wait. */
  #backoff = 1;

  constructor(bounds: TimeoutBounds) {
    this.#bounds = bounds;
  }

  get ms(): number {
    const { leastMs, firstMs = leastMs, mostMs } = this.#bounds;
    const measured = this.#smoothed === undefined ? firstMs : this.#smoothed + 4 * this.#variation;
    return Math.min(mostMs, Math.max(leastMs, measured) * this.#backoff);
  }

  /** An answer arrived after this time, in time or late. */
  answered(tookMs: number): void {
    this.#backoff = 1;
    if (this.#smoothed === undefined) {
      this.#smoothed = tookMs;
      this.#variation = tookMs / 2;
      return;
    }
    this.#variation += (Math.abs(tookMs - this.#smoothed) - this.#variation) / 4;
    this.#smoothed += (tookMs - this.#smoothed) / 8;
  }

  /** No answer arrived in time. */
  expired(): void {
    if (this.ms < this.#bounds.mostMs) this.#backoff *= 2;
  }

  /** For a question that ends by itself at a time: `ask` gets the bound of now, and what it took is learnt. Rejects as `ask` does. */
  async bound<T>(now: () => number, ask: (ms: number) => Promise<T>): Promise<T> {
    const { ms } = this;
    const from = now();
    try {
      const answer = await ask(ms);
      this.answered(now() - from);
      return answer;
    } catch (error) {
      if (now() - from >= ms) this.expired();
      throw error;
    }
  }
}
