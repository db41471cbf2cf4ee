/** How soon the next round may follow: each one is a question to every scheduler, and squeue in a loop is what administrators ban users for. */

/** After a quiet time so many rounds may follow each other at once: a cold start is a request, a job, a node that joins and one that serves. */
const BURST = 5;
/** Then one in so many ms, however often the gateway has news. */
const REFILL_MS = 5_000;
/** News that come in one breath are one round. */
const LEAST_MS = 300;

export class RoundPace {
  #left = BURST;
  #countedAt: number;

  constructor(now: number) {
    this.#countedAt = now;
  }

  /**
   * Call it after each round; ms to wait at least before the next one.
   * @param every ms between rounds without any news: news never make them rarer than that
   */
  rest(every: number, now: number): number {
    const refillMs = Math.min(REFILL_MS, every);
    // A clock that was set back gives nothing.
    const gained = Math.max(0, now - this.#countedAt) / refillMs;
    this.#left = Math.min(BURST, this.#left + gained) - 1;
    this.#countedAt = now;
    return Math.max(LEAST_MS, -this.#left * refillMs);
  }
}
