import { type AttemptRequest, attemptName, type ResultOf } from '../../../shared/attempts/attempt-request.ts';
import type { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';
import { TransientMap } from '../../../shared/collections/transient-map.ts';
import { AdaptiveTimeout } from '../../../shared/timing/adaptive-timeout.ts';
import { RESUME_WINDOW_MS } from '../../../shared/wire/protocol-constants.ts';
import { waitClock } from '../../platform/wait-clock.ts';
import type { CallResult } from './call-encoding.ts';

/** A call waits this long for its response. After that its Worker must fetch the response. */
const CALL_MS = 200;

/**
 * Bounds on how long a response waits until its Worker fetches it: at least one round trip across the world, longer if
 * earlier Workers took longer. If the wait is too short, the response is computed twice. The wait is at most as long as
 * an agent keeps a response: no Worker requests the response after that.
 */
const FETCH = { leastMs: 400, firstMs: 3_000, mostMs: RESUME_WINDOW_MS };

interface Call {
  attempt: OutboundAttempt;
  /** When the wait ends, by `waitClock`; infinite after `fetch` was returned. */
  giveUpAt: number;
  /** When `fetch` was returned; absent: it was not returned yet. */
  fetchSentAt?: number;
  requireFetch: () => void;
}

export type AttemptName = Pick<AttemptRequest, 'requestId' | 'attempt'>;

/**
 * Attempts that arrived as a call, by name, until they are answered or fetched. There is at most one per
 * OutboundAttempt, so the maximum of OutboundAttempts bounds this map.
 */
export class PendingCalls {
  readonly #calls = new TransientMap<string, Call>();
  readonly #fetch = new AdaptiveTimeout(FETCH);

  /**
   * Adds an attempt. `answer` gets the whole response if it arrives soon, otherwise `fetch`. `begun` is passed to
   * `AttemptResultListener.notifyWhole`.
   */
  add(
    attempt: OutboundAttempt,
    answer: (result: CallResult) => void,
    begun?: (answer: ResultOf<'stream'>) => boolean,
  ): void {
    const call: Call = { attempt, giveUpAt: waitClock.now() + CALL_MS, requireFetch: () => {} };
    call.requireFetch = () => {
      call.giveUpAt = Number.POSITIVE_INFINITY;
      call.fetchSentAt = waitClock.now();
      attempt.listener.hold(call.fetchSentAt + this.#fetch.ms);
      answer({ kind: 'fetch' });
    };
    this.#calls.set(attemptName(attempt.request), call);
    attempt.listener.notifyWhole(answer, call.requireFetch, begun);
  }

  has(name: AttemptName): boolean {
    return this.#calls.has(attemptName(name));
  }

  /** Removes and returns an attempt that its Worker now fetches. */
  take(name: AttemptName): OutboundAttempt | undefined {
    const call = this.#end(name);
    if (call?.fetchSentAt !== undefined) this.#fetch.answered(waitClock.now() - call.fetchSentAt);
    return call?.attempt;
  }

  /** Removes an attempt that has ended. `left`: no Worker fetched it. */
  over(name: AttemptName, left: boolean): void {
    if (this.#end(name)?.fetchSentAt !== undefined && left) this.#fetch.expired();
  }

  #end(name: AttemptName): Call | undefined {
    const key = attemptName(name);
    const call = this.#calls.get(key);
    this.#calls.delete(key);
    return call;
  }

  /** Ends the attempt of a call whose client disconnected. */
  cancel(name: AttemptName): void {
    this.#calls.get(attemptName(name))?.attempt.cancel();
  }

  tick(now: number): void {
    for (const { giveUpAt, requireFetch } of this.#calls.values()) if (now >= giveUpAt) requireFetch();
  }
}
