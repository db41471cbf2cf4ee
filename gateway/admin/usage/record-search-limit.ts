/**
 * Limits searches through whole hours of usage records, for requests without a timeline. Each hour is read completely:
 * without a limit one key could keep the usage objects busy by asking for ids that do not exist.
 */

import { ApiError, retryAfter } from '../../../shared/openai/api-errors.ts';
import { isRecent } from '../../../shared/timing/is-recent.ts';

/** Maximum concurrent searches of all accounts, in this process or isolate. */
const RUNNING_MAX = 4;
/** Maximum searches of one account in PER_MS. They run one after another. */
const STARTED_MAX = 12;
const PER_MS = 60_000;
/** Maximum accounts that searched recently. If the map is full, other accounts cannot search. */
const ACCOUNTS_MAX = 10_000;
const RETRY_MS = 2_000;

interface Account {
  running: boolean;
  /** Start times of the account's searches within the last PER_MS, in milliseconds. */
  started: number[];
}

export class RecordSearchLimit {
  readonly #accounts = new Map<string, Account>();
  #running = 0;

  /**
   * Starts a search. `now` is in milliseconds. Returns a function that ends the search.
   * @throws ApiError rate_limit_exceeded
   */
  begin(accountId: string, now: number): () => void {
    const account = this.#account(accountId, now);
    const [oldest = now] = account.started;
    if (account.started.length >= STARTED_MAX) throw tooMany(oldest + PER_MS - now);
    if (account.running || this.#running >= RUNNING_MAX) throw tooMany(RETRY_MS);
    account.running = true;
    account.started.push(now);
    this.#running++;
    let over = false;
    return () => {
      if (over) return;
      over = true;
      account.running = false;
      this.#running--;
    };
  }

  #account(accountId: string, now: number): Account {
    const known = this.#accounts.get(accountId);
    if (known === undefined && this.#accounts.size >= ACCOUNTS_MAX) this.#sweep(now);
    if (known === undefined && this.#accounts.size >= ACCOUNTS_MAX) throw tooMany(RETRY_MS);
    const account = known ?? { running: false, started: [] };
    account.started = account.started.filter((at) => isRecent(PER_MS, at, now));
    this.#accounts.set(accountId, account);
    return account;
  }

  #sweep(now: number): void {
    for (const [accountId, { running, started }] of this.#accounts)
      if (!running && !started.some((at) => isRecent(PER_MS, at, now))) this.#accounts.delete(accountId);
  }
}

function tooMany(waitMs: number): ApiError {
  const message =
    'The gateway has no timeline of this request and must search the usage records. This is allowed 12 times a minute, one search at a time. Try again later. For recent requests no search is needed.';
  return new ApiError('rate_limit_exceeded', message, { headers: retryAfter(Math.max(waitMs, RETRY_MS)) });
}
