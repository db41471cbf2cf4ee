/**
 * How long an answer is waited for, by how long the last ones took: the retransmission timer of TCP (RFC 6298). A peer that is slow but well
 * is waited for longer from its first slow answer on, a fast one as shortly as `leastMs`.
 */
export interface TimeoutBounds {
  /** For a peer that is fast. */
  leastMs: number;
  /** For a peer that is not known yet; `leastMs` if absent. */
  firstMs?: number;
  /** However slow it was: a peer that is gone is found in the end. */
  mostMs: number;
}

export class AdaptiveTimeout {
  readonly #bounds: TimeoutBounds;
  /** Smoothed time of an answer, and how much times vary; undefined: none was measured. */
  #smoothed: number | undefined;
  #variation = 0;
  /** Doubles with each wait that was in vain. */
  #backoff = 1;

  constructor(bounds: TimeoutBounds) {
    this.#bounds = bounds;
  }

  get ms(): number {
    const { leastMs, firstMs = leastMs, mostMs } = this.#bounds;
    const measured = this.#smoothed === undefined ? firstMs : this.#smoothed + 4 * this.#variation;
    return Math.min(mostMs, Math.max(leastMs, measured) * this.#backoff);
  }

  /** An answer came after so long, in time or late. */
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

  /** No answer came in time. */
  expired(): void {
    if (this.ms < this.#bounds.mostMs) this.#backoff *= 2;
  }
}
