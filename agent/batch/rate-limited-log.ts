/**
 * Minimum time between two log lines. A gateway that is unreachable for a whole night then causes only a few dozen
 * lines.
 */
const LOG_INTERVAL_MS = 10 * 60_000;

/**
 * Logs the first failure immediately, and a later one only if LOG_INTERVAL_MS have passed. Shared by all workers that
 * ask the same gateway.
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
