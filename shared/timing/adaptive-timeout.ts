/**
 * Bounds of a time limit that adapts to the time that recent answers took, as TCP's retransmission timer does (RFC
 * 6298). The limit rises with the first slow answer of a peer. For a fast peer it stays at `leastMs`.
 */
export interface TimeoutBounds {
  /** The limit for a fast peer, in milliseconds. */
  leastMs: number;
  /** The limit before the first answer; default `leastMs`. */
  firstMs?: number;
  /** The maximum of the limit, so that a dead peer is always detected. */
  mostMs: number;
}

export class AdaptiveTimeout {
  readonly #bounds: TimeoutBounds;
  /** Smoothed time that an answer takes, and its mean deviation; undefined before the first answer. */
  #smoothed: number | undefined;
  #variation = 0;
  /** Factor by which the limit is multiplied. It doubles each time an answer does not arrive in time. */
  #backoff = 1;

  constructor(bounds: TimeoutBounds) {
    this.#bounds = bounds;
  }

  get ms(): number {
    const { leastMs, firstMs = leastMs, mostMs } = this.#bounds;
    const measured = this.#smoothed === undefined ? firstMs : this.#smoothed + 4 * this.#variation;
    return Math.min(mostMs, Math.max(leastMs, measured) * this.#backoff);
  }

  /** Records an answer that took `tookMs`, whether or not it arrived in time. */
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

  /** Records that no answer arrived in time. */
  expired(): void {
    if (this.ms < this.#bounds.mostMs) this.#backoff *= 2;
  }

  /**
   * Calls `ask` with the current limit in milliseconds, which `ask` must enforce, and adapts the limit to the time that
   * the answer took. Rejects with the error of `ask`.
   */
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
