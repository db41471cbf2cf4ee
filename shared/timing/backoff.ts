/** Waits after failures. Each wait is twice the previous one, up to a maximum. */

interface BackoffBounds {
  minMs: number;
  maxMs: number;
}

/** Maximum number of doublings. 2^30 times the shortest wait is longer than every maximum. */
const DOUBLINGS_MAX = 30;

/** The wait after a failure that follows `earlier` other failures. */
export function backoffMs(earlier: number, { minMs, maxMs }: BackoffBounds): number {
  return Math.min(maxMs, minMs * 2 ** Math.min(earlier, DOUBLINGS_MAX));
}

/**
 * The waits of one machine. They vary at random, so that machines that failed at the same time do not all reconnect at
 * the same time.
 */
export class Backoff {
  readonly #bounds: BackoffBounds;
  readonly #random: () => number;
  readonly #spread: number;
  #failures = 0;

  /** @param spread maximum fraction of a wait that is added or subtracted at random */
  constructor(bounds: BackoffBounds, random: () => number, spread = 0.2) {
    this.#bounds = bounds;
    this.#random = random;
    this.#spread = spread;
  }

  /** Number of failures since the last success. */
  get failures(): number {
    return this.#failures;
  }

  /** Counts a failure. Returns the wait before the next try in milliseconds. */
  next(): number {
    return backoffMs(this.#failures++, this.#bounds) * (1 + this.#spread * (2 * this.#random() - 1));
  }

  /** Call after a success. Resets the count of failures. */
  reset(): void {
    this.#failures = 0;
  }
}
