/** Waits after failures: each is twice the previous one, up to a maximum. */

interface BackoffBounds {
  minMs: number;
  maxMs: number;
}

/** 2^30 times the shortest wait exceeds every maximum. */
const DOUBLINGS_MAX = 30;

/** The wait after a failure, if `earlier` failures came before it. */
export function backoffMs(earlier: number, { minMs, maxMs }: BackoffBounds): number {
  return Math.min(maxMs, minMs * 2 ** Math.min(earlier, DOUBLINGS_MAX));
}

/**
 * The waits of one machine. They vary at random, so that machines that failed together do not all reconnect together.
 */
export class Backoff {
  readonly #bounds: BackoffBounds;
  readonly #random: () => number;
  readonly #spread: number;
  #failures = 0;

  /** @param spread largest fraction of a wait that is added or subtracted */
  constructor(bounds: BackoffBounds, random: () => number, spread = 0.2) {
    this.#bounds = bounds;
    this.#random = random;
    this.#spread = spread;
  }

  /** Failures since the last success. */
  get failures(): number {
    return this.#failures;
  }

  /** Counts a failure. Returns the wait before the next try in milliseconds. */
  next(): number {
    return backoffMs(this.#failures++, this.#bounds) * (1 + this.#spread * (2 * this.#random() - 1));
  }

  /** Resets the count of failures, after a success. */
  reset(): void {
    this.#failures = 0;
  }
}
