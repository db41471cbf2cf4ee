/** Length of the window in which events are counted. */
export const RATE_WINDOW_MS = 10_000;

/**
 * Counts the events of the last 10 s with two counters, one for the current window and one for the previous window. The
 * previous counter is weighted by the part of its window that is less than 10 s old.
 */
export class EventRate {
  #startedAt = Number.NEGATIVE_INFINITY;
  #current = 0;
  #previous = 0;

  add(now: number): void {
    this.#rotate(now);
    this.#current++;
  }

  count(now: number): number {
    this.#rotate(now);
    return this.#current + this.#previous * (1 - (now - this.#startedAt) / RATE_WINDOW_MS);
  }

  /** If the clock was set back, counting starts from zero. */
  #rotate(now: number): void {
    const age = now - this.#startedAt;
    if (age >= 0 && age < RATE_WINDOW_MS) return;
    const next = age >= RATE_WINDOW_MS && age < 2 * RATE_WINDOW_MS;
    this.#previous = next ? this.#current : 0;
    this.#current = 0;
    this.#startedAt = next ? this.#startedAt + RATE_WINDOW_MS : now;
  }
}
