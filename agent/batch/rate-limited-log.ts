/** With this interval, a whole night without a gateway causes only a few dozen lines in the log. */
const LOG_INTERVAL_MS = 10 * 60_000;

/**
 * Logs a failure immediately, and further ones after ten minutes at the earliest. Shared by all workers that ask the
 * same gateway.
 */
export class RateLimitedLog {
  readonly #log: (line: string) => void;
  #untilMs = Number.NEGATIVE_INFINITY;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  log(line: string): void {
    const now = performance.now();
    if (now < this.#untilMs) return;
    this.#untilMs = now + LOG_INTERVAL_MS;
    this.#log(line);
  }
}
