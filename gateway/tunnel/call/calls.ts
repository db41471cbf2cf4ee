import { TransientMap } from '../../../shared/collections/transient-map.ts';
import { type AttemptRequest, attemptName } from '../../../shared/upstream/attempt.ts';
import type { Known } from '../../../shared/upstream/result-listener.ts';
import type { UpstreamStream } from '../../../shared/upstream/upstream-stream.ts';
import { steadyNow } from '../../steady-clock.ts';
import type { CallResult } from './attempt-call.ts';

/**
 * A call waits CALL_MS for its answer. The answer then waits FETCH_MS to be fetched: a Worker's way there and back across the world.
 * An answer that is fetched too late is computed twice. An answer that no Worker fetches ends within a second.
 */
const CALL_MS = 200;
const FETCH_MS = 400;

interface Call {
  upstream: UpstreamStream;
  /** By `steadyNow`; infinite once the Worker was told to fetch. */
  giveUpAt: number;
  fetchIt: () => void;
}

export type AttemptName = Pick<AttemptRequest, 'requestId' | 'attempt'>;

/**
 * Attempts that came as a call, by name, until they are answered or fetched. At most one for each upstream, so the bound on upstreams
 * bounds them.
 */
export class Calls {
  readonly #calls = new TransientMap<string, Call>();

  /** `answer` gets the whole answer if it comes soon. Else it is told to fetch the answer. `begun`: as the listener's. */
  add(upstream: UpstreamStream, answer: (result: CallResult) => void, begun?: (known: Known) => boolean): void {
    const call: Call = { upstream, giveUpAt: steadyNow() + CALL_MS, fetchIt: () => {} };
    call.fetchIt = () => {
      call.giveUpAt = Number.POSITIVE_INFINITY;
      upstream.hold(steadyNow() + FETCH_MS);
      answer({ kind: 'fetch' });
    };
    this.#calls.set(attemptName(upstream.request), call);
    upstream.inform(answer, call.fetchIt, begun);
  }

  has(name: AttemptName): boolean {
    return this.#calls.has(attemptName(name));
  }

  /** The Worker fetches the attempt, or the attempt is over: it is no call any more. */
  take(name: AttemptName): UpstreamStream | undefined {
    const key = attemptName(name);
    const call = this.#calls.get(key);
    this.#calls.delete(key);
    return call?.upstream;
  }

  /** The call's client left. */
  cancel(name: AttemptName): void {
    this.#calls.get(attemptName(name))?.upstream.cancel();
  }

  tick(now: number): void {
    for (const { giveUpAt, fetchIt } of this.#calls.values()) if (now >= giveUpAt) fetchIt();
  }
}
