import { RATE_WINDOW_MS, Rate } from './event-rate.ts';

/** Retries may be this share of first attempts. If everything fails, retrying everything would make it worse. */
export const RETRY_SHARE = 0.2;

/** This many retries per second are always allowed: a quiet isolate has no traffic to take a share of. */
const FLOOR_PER_S = 10;

/** After Finagle's retry budgets: https://finagle.github.io/blog/2016/02/08/retry-budgets/ */
export class RetryBudget {
  readonly #requests = new Rate();
  readonly #retries = new Rate();

  /** A request begins. */
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
