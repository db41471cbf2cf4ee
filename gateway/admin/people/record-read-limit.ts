/**
 * Limits concurrent reads of the hours of usage records. One read calls up to 48 objects: without a limit one key could
 * fill the queue of reports.
 */

import { ApiError, retryAfter } from '../../../shared/openai/api-errors.ts';
import { isRecent } from '../../../shared/timing/is-recent.ts';

/** Maximum concurrent reads of one account. The page Usage makes two. */
const ACCOUNT_MAX = 4;
/** Maximum concurrent reads of all accounts, in this process or isolate. */
const ALL_MAX = 16;
/** Longest time that a read counts. A Worker that stops because its client disconnected never ends its reads. */
const COUNTED_MS = 60_000;
const RETRY_MS = 2_000;

class RecordReadLimit {
  #running: { account: string; at: number }[] = [];

  /**
   * Begins a read. `now` is in milliseconds. Returns a function that ends the read.
   * @throws ApiError rate_limit_exceeded, server_is_overloaded
   */
  begin(account: string, now: number): () => void {
    this.#running = this.#running.filter(({ at }) => isRecent(COUNTED_MS, at, now));
    const headers = retryAfter(RETRY_MS);
    if (this.#running.filter((one) => one.account === account).length >= ACCOUNT_MAX) {
      const message = `You are already reading your usage ${ACCOUNT_MAX} times, the maximum. Wait for a response.`;
      throw new ApiError('rate_limit_exceeded', message, { headers });
    }
    if (this.#running.length >= ALL_MAX)
      throw new ApiError('server_is_overloaded', 'The gateway reads the usage of many users now.', { headers });
    const read = { account, at: now };
    this.#running.push(read);
    return () => {
      this.#running = this.#running.filter((one) => one !== read);
    };
  }
}

export const recordReadLimit = new RecordReadLimit();
