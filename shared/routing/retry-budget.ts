import { EventRate, RATE_WINDOW_MS } from './event-rate.ts';

/**
 * Number of retries per first attempt that the budget allows. If every attempt fails, more retries would only add load
 * to failing nodes.
 */
export const RETRY_SHARE = 0.2;

/** Retries per second that are always allowed, because an isolate with little traffic would otherwise get none. */
const FLOOR_PER_S = 10;

/** Limits retries like Finagle's retry budgets: https://finagle.github.io/blog/2016/02/08/retry-budgets/ */
export class RetryBudget {
  readonly #requests = new EventRate();
  readonly #retries = new EventRate();

  /** Counts the start of a request. */
  asked(now: number): void {
    this.#requests.add(now);
  }

  /** Returns whether one retry is allowed, and counts it if so. */
  take(now: number, share = RETRY_SHARE): boolean {
    const allowed = (FLOOR_PER_S * RATE_WINDOW_MS) / 1000 + share * this.#requests.count(now);
    if (this.#retries.count(now) + 1 > allowed) return false;
    this.#retries.add(now);
    return true;
  }
}
