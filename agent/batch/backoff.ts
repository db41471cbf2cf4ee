/** When a gateway that failed is asked again, and how often failures are logged. */

/** With this a night without a gateway is a few dozen lines. */
const LOG_INTERVAL_MS = 10 * 60_000;

/**
 * Logs a failure immediately, and further ones after ten minutes at the earliest. Shared by all workers that ask the
 * same gateway.
 */
export class FailureLog {
  readonly #log: (line: string) => void;
  #untilMs = Number.NEGATIVE_INFINITY;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  tell(line: string): void {
    const now = performance.now();
    if (now < this.#untilMs) return;
    this.#untilMs = now + LOG_INTERVAL_MS;
    this.#log(line);
  }
}

/**
 * Doubles after each failure, minus up to a quarter, so that agents that lost one gateway together do not return
 * together.
 */
export class LoggedBackoff {
  readonly #firstMs: number;
  readonly #mostMs: number;
  #nextMs: number;

  constructor({ first, most }: { first: number; most: number }) {
    this.#firstMs = first;
    this.#mostMs = most;
    this.#nextMs = first;
  }

  succeeded(): void {
    this.#nextMs = this.#firstMs;
  }

  /** Returns the milliseconds until the next try. */
  failed(): number {
    const ms = this.#nextMs * (1 - Math.random() / 4);
    this.#nextMs = Math.min(this.#mostMs, this.#nextMs * 2);
    return ms;
  }
}
