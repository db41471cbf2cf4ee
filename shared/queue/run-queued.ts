/**
 * Runs a request that may have to wait for a node. It waits for its turn and tries again, until it is served or its
 * wait is over.
 */

import { AttemptError } from '../attempts/attempt-error.ts';
import { ApiError, retryAfter } from '../openai/api-errors.ts';
import type { QueueEntry } from './queue-entry.ts';
import type { TurnResult } from './wait-queue.ts';

export interface QueuedWork<D> {
  model: string;
  /** Maximum total wait in milliseconds; 0: the request does not wait. */
  waitMs: number;
  entry: QueueEntry;
  /** The error after the wait is over. If undefined or absent, an error says that no node became free. */
  late?(): ApiError | undefined;
  /** True if another request already waits for the same nodes. This request then does not try before it. */
  mustWaitFirst(): boolean;
  /** Waits once, until the time `until` at most. @param back true if the previous turn found no free node */
  wait(until: number, back: boolean): Promise<TurnResult>;
  /** Tries the nodes that are available now. Rejects with the client's error if none answers. */
  tryNodes(): Promise<D>;
  /** True if the client has disconnected. */
  clientDisconnected(): boolean;
  /** Milliseconds of a monotonic clock. */
  now(): number;
}

/**
 * Runs the request.
 * @throws the ApiError of the last try; 429 `queue_full`; 503 `no_capacity` after the maximum wait
 */
export async function runQueued<D>(request: QueuedWork<D>): Promise<D> {
  const { entry, model, waitMs } = request;
  let until: number | undefined;
  let first = waitMs === 0 || !request.mustWaitFirst();
  for (let back = false; ; back = true) {
    if (first) {
      try {
        return await request.tryNodes();
      } catch (error) {
        if (!entry.mayWait(error)) throw error;
      }
    }
    if (request.clientDisconnected()) throw new AttemptError('cancelled', 'the client disconnected');
    const now = request.now();
    until ??= now + waitMs;
    entry.queued = true;
    const answer = await request.wait(until, back && first).finally(() => {
      entry.queued = false;
    });
    entry.queuedMs += request.now() - now;
    first = true;
    switch (answer.kind) {
      case 'turn':
        entry.begin(answer);
        break;
      case 'full':
        throw queueFull(model, answer.retryAfterMs);
      case 'late':
        throw request.late?.() ?? tooLate(model, waitMs);
    }
  }
}

function queueFull(model: string, retryAfterMs: number): ApiError {
  const message = `Too many requests already wait for '${model}'; try again shortly.`;
  return new ApiError('queue_full', message, { headers: retryAfter(retryAfterMs) });
}

function tooLate(model: string, waitMs: number): ApiError {
  const seconds = Math.round(waitMs / 1000);
  const message = `No node for '${model}' became free within ${seconds} s; try again later.`;
  // SDKs must not retry, because the request has waited as long as it may, and SDKs' two retries would triple the wait.
  return new ApiError('no_capacity', message, { headers: { 'x-should-retry': 'false' } });
}
