import { TransientMap } from '../../shared/collections/transient-map.ts';
import type { Known } from '../../shared/upstream/result-listener.ts';
import type { UpstreamStream } from '../../shared/upstream/upstream-stream.ts';
import { steadyNow } from '../steady-clock.ts';
import { type AttemptRequest, type CallResult, nameOf } from './attempt.ts';

/**
 * A call waits this long for its answer, and the answer then so long for being fetched: a Worker's way there and back across
 * the world. What is fetched too late is computed twice; what nobody fetches, because its Worker is gone, ends within a second.
 */
const CALL_MS = 200;
const FETCH_MS = 400;

interface Call {
  upstream: UpstreamStream;
  /** Of `steadyNow`; never once its Worker was told to fetch. */
  giveUpAt: number;
  fetchIt: () => void;
}

export type AttemptName = Pick<AttemptRequest, 'requestId' | 'attempt'>;

/**
 * Attempts that came as a call, by name, until they are answered or fetched. One for each upstream at most: what bounds those
 * bounds these.
 */
export class Calls {
  readonly #calls = new TransientMap<string, Call>();

  /** `answer` gets the whole answer if that is soon there, else word to fetch it. `begun`: as the listener's. */
  add(upstream: UpstreamStream, answer: (result: CallResult) => void, begun?: (known: Known) => boolean): void {
    const call: Call = { upstream, giveUpAt: steadyNow() + CALL_MS, fetchIt: () => {} };
    call.fetchIt = () => {
      call.giveUpAt = Number.POSITIVE_INFINITY;
      upstream.hold(steadyNow() + FETCH_MS);
      answer({ kind: 'fetch' });
    };
    this.#calls.set(nameOf(upstream.request), call);
    upstream.inform(answer, call.fetchIt, begun);
  }

  has(name: AttemptName): boolean {
    return this.#calls.has(nameOf(name));
  }

  /** A caller fetched it, or it is over. */
  take(name: AttemptName): UpstreamStream | undefined {
    const key = nameOf(name);
    const call = this.#calls.get(key);
    this.#calls.delete(key);
    return call?.upstream;
  }

  /** Its client left. */
  cancel(name: AttemptName): void {
    this.#calls.get(nameOf(name))?.upstream.cancel();
  }

  tick(now: number): void {
    for (const { giveUpAt, fetchIt } of this.#calls.values()) if (now >= giveUpAt) fetchIt();
  }
}
