/**
 * Waiting times that double up to `maxMs`, each ± 20 %, so that nodes that lost the same peer do not all return at the
 * same moment.
 */
export class DialBackoff {
  readonly #minMs: number;
  readonly #maxMs: number;
  readonly #random: () => number;
  #failures = 0;

  constructor(minMs: number, maxMs: number, random: () => number) {
    this.#minMs = minMs;
    this.#maxMs = maxMs;
    this.#random = random;
  }

  next(): number {
    const base = Math.min(this.#maxMs, this.#minMs * 2 ** Math.min(this.#failures, 30));
    this.#failures++;
    return base * (0.8 + 0.4 * this.#random());
  }

  reset(): void {
    this.#failures = 0;
  }
}
