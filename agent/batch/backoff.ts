/** When a gateway that failed is asked again, and how often that is told of. */

/** A night without a gateway is some dozen lines. */
const TELL_MS = 10 * 60_000;

/** A failure at once, and others after ten minutes at the earliest. One for all who ask the same gateway. */
export class FailureLog {
  readonly #log: (line: string) => void;
  #untilMs = Number.NEGATIVE_INFINITY;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  tell(line: string): void {
    const now = performance.now();
    if (now < this.#untilMs) return;
    this.#untilMs = now + TELL_MS;
    this.#log(line);
  }
}

/** Twice as long after each failure, less a quarter at most: agents that lost one gateway together do not come back together. */
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

  /** Milliseconds until the next try. */
  failed(): number {
    const ms = this.#nextMs * (1 - Math.random() / 4);
    this.#nextMs = Math.min(this.#mostMs, this.#nextMs * 2);
    return ms;
  }
}
