/** The pulls of this process that run or ended recently, for `status`. */

import { errorText } from '../../shared/text/error-text.ts';
import type { PullStatus } from '../host/control-protocol.ts';

/** Maximum number of remembered finished pulls. Running pulls are always kept, because callers wait for them. */
const PULLS_MAX = 16;

interface Row<T> {
  status: PullStatus;
  promise: Promise<T>;
}

export class RecentPulls<T> {
  /** Pulls by source, oldest first. */
  readonly #rows = new Map<string, Row<T>>();

  /** Statuses in the order of the pulls' start. */
  statuses(): PullStatus[] {
    return [...this.#rows.values()].map(({ status }) => ({ ...status }));
  }

  /** Joins the running pull of that source, or starts one. */
  run(source: string, pull: (status: PullStatus) => Promise<T>): Promise<T> {
    const running = this.#rows.get(source);
    if (running !== undefined && !hasEnded(running.status)) return running.promise;
    const status = fresh(source);
    const promise = pull(status).catch((error: unknown) => fail(status, error));
    // The caller gets the error. If the caller no longer waits, the error would end the process without this handler.
    promise.catch(() => {});
    this.#rows.delete(source);
    this.#rows.set(source, { status, promise });
    for (const [name, row] of this.#rows)
      if (this.#rows.size > PULLS_MAX && hasEnded(row.status)) this.#rows.delete(name);
    return promise;
  }

  /** Runs a further step with a finished pull's result. */
  async after<R>(source: string, state: PullStatus['state'], act: (status: PullStatus) => Promise<R>): Promise<R> {
    const status = this.#rows.get(source)?.status ?? fresh(source);
    status.state = state;
    try {
      const result = await act(status);
      status.state = 'done';
      return result;
    } catch (error) {
      return fail(status, error);
    }
  }
}

function fresh(source: string): PullStatus {
  const started_at = new Date().toISOString();
  return { source, bytes: 0, total: 0, from_source: 0, from_peers: 0, state: 'listing', started_at };
}

function hasEnded({ state }: PullStatus): boolean {
  return state === 'done' || state === 'failed';
}

function fail(status: PullStatus, error: unknown): never {
  status.state = 'failed';
  status.trouble = errorText(error);
  throw error;
}
