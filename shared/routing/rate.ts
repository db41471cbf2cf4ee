/** How long is looked back. */
export const RATE_WINDOW_MS = 10_000;

/** Counts what happened within the last 10 s, in two numbers: the half of the older window that is still in sight counts half. */
export class Rate {
  #startedAt = Number.NEGATIVE_INFINITY;
  #current = 0;
  #previous = 0;

  add(now: number): void {
    this.#turn(now);
    this.#current++;
  }

  count(now: number): number {
    this.#turn(now);
    return this.#current + this.#previous * (1 - (now - this.#startedAt) / RATE_WINDOW_MS);
  }

  /** A clock that was set back starts afresh. */
  #turn(now: number): void {
    const age = now - this.#startedAt;
    if (age >= 0 && age < RATE_WINDOW_MS) return;
    const next = age >= RATE_WINDOW_MS && age < 2 * RATE_WINDOW_MS;
    this.#previous = next ? this.#current : 0;
    this.#current = 0;
    this.#startedAt = next ? this.#startedAt + RATE_WINDOW_MS : now;
  }
}
