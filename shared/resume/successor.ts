/** Finds the node that goes on with a stream whose own node is gone, and asks it to. */

import type { After } from '../collections/timer.ts';
import { ApiError } from '../openai/errors.ts';
import { endingOf, mayTryAnotherAfter } from '../routing/attempts.ts';
import { AttemptError } from '../upstream/attempt-error.ts';
import {
  type AttemptPlan,
  type Choice,
  type DispatchHost,
  dispatch,
  type UpstreamResponse,
} from '../upstream/dispatch.ts';
import type { DispatchContext } from '../upstream/dispatch-context.ts';
import { isEventStream, type ResponseStream, type StartedResponse } from '../upstream/response.ts';
import type { Continuation } from './continued-stream.ts';
import { Unfit } from './tokenizer.ts';

/** Nodes whose engine cannot, or reads the text in another way: each costs some requests for tokens. */
const REJECTED_MAX = 4;

/** What finding a successor needs of its side. */
export interface ResumeHost<C extends Choice, A extends ResponseStream> {
  /** How any request of this side is dispatched. */
  dispatchHost(context: DispatchContext): DispatchHost<C, A>;
  /** Sessions that serve the model in another revision or quantisation than the first node did. */
  unlike(): Iterable<string>;
  /** For requests without a charge: a name for their streams, and a receipt without an account. */
  unpaid(): { name: string; receipt: string };
  /**
   * Calls `tryNodes`, and again whenever it is this stream's turn, as for any request that finds no free node. `rejected`: nodes that
   * it cannot use, though others could. Rejects with the last try's error, or with what became of the wait.
   */
  inTurn(
    tryNodes: () => Promise<UpstreamResponse<C, A>>,
    rejected: () => readonly string[],
  ): Promise<UpstreamResponse<C, A>>;
  /** Some node had no place for it a moment ago. */
  busy(): boolean;
  /** The client of a stream that waits hears something so often. */
  pingMs: number;
  after: After;
}

/** A stream that breaks off. */
export interface Broken<C extends Choice> {
  context: DispatchContext;
  prepare: Continuation<C>;
  /** Who has it tried before. */
  tried: Set<string>;
  /** Attempts made for this request, so that the next one has a name of its own. */
  attempts: number;
}

export interface Successor<C extends Choice, A extends ResponseStream> {
  response: UpstreamResponse<C, A>;
}

/** @returns the next node's answer, or why there is none. @throws AttemptError `cancelled` when the client left */
export async function findSuccessor<C extends Choice, A extends ResponseStream>(
  broken: Broken<C>,
  host: ResumeHost<C, A>,
): Promise<Successor<C, A> | { why: string }> {
  const search = new Search(broken, host);
  try {
    const response = await host.inTurn(
      () => search.tryNodes(),
      () => search.rejected,
    );
    return { response };
  } catch (error) {
    if (error instanceof ApiError) return { why: search.why(error) };
    throw error; // the client left
  }
}

class Search<C extends Choice, A extends ResponseStream> {
  readonly #broken: Broken<C>;
  readonly #host: ResumeHost<C, A>;
  /** Who made the attempt that runs, and is told of its end. */
  #running: DispatchHost<C, A> | undefined;
  /** Status of an engine that is there and cannot now. */
  #busyStatus: number | undefined;
  readonly #rejected = new Set<string>();
  /** What was wrong with the last of them. */
  #unfit: string | undefined;
  /** What the last try ended with. */
  #last: ApiError | undefined;
  #rounds = 0;

  constructor(broken: Broken<C>, host: ResumeHost<C, A>) {
    this.#broken = broken;
    this.#host = host;
  }

  get rejected(): readonly string[] {
    return [...this.#rejected];
  }

  /** One look at all nodes of now. */
  async tryNodes(): Promise<UpstreamResponse<C, A>> {
    // Who failed before the wait may be well again; without one it was asked a moment ago.
    if (this.#rounds++ > 0) this.#broken.tried.clear();
    for (;;) {
      const before = this.#rejected.size;
      try {
        return await dispatch(this.#dispatchHost());
      } catch (error) {
        if (this.#rejected.size === before) throw error;
        if (this.#rejected.size >= REJECTED_MAX) throw this.#hopeless();
      }
    }
  }

  #hopeless(): ApiError {
    this.#last = new ApiError('upstream_error', this.#unfit ?? '');
    return this.#last;
  }

  /** For the client that is told of the break. */
  why(error: ApiError): string {
    const { code, cause } = error;
    if (code === 'queue_full') return 'too many requests wait for a node already';
    if (error !== this.#last) return 'no node that could go on became free for as long as it may wait';
    if (cause instanceof AttemptError) {
      return cause.code === 'overloaded' ? 'the other nodes have no place for it' : 'the other nodes failed too';
    }
    return this.#unfit ?? 'no other node serves the model in the same revision and quantisation';
  }

  #dispatchHost(): DispatchHost<C, A> {
    const { context, tried } = this.#broken;
    const usual = this.#host.dispatchHost(context);
    return {
      ...usual,
      choose: (round) => usual.choose(new Set([...round, ...tried, ...this.#rejected, ...this.#host.unlike()])),
      attempt: (choice, attempt) => this.#attempt(choice, attempt),
      onFailure: (choice, code) => {
        if (code !== 'cancelled') usual.onFailure(choice, code);
      },
      onEnd: (choice, ending) => {
        this.#running?.onEnd(choice, this.#busyStatus === undefined ? ending : endingOf(this.#busyStatus));
        this.#running = undefined;
        this.#busyStatus = undefined;
      },
      repeatable: () => true,
      refusal: (failure) => {
        // Who was found unfit would be so again: that is waited for only where others are there.
        const hopeless = failure === undefined && this.#unfit !== undefined && !this.#host.busy();
        this.#last = hopeless ? this.#hopeless() : usual.refusal(failure);
        return this.#last;
      },
    };
  }

  async #attempt(choice: C, { acceptMs, movable, moved }: AttemptPlan): Promise<StartedResponse<A>> {
    const { prepare, tried } = this.#broken;
    tried.add(choice.node.session);
    const attempt = { number: ++this.#broken.attempts, acceptMs, movable, moved };
    try {
      return await this.#begin(await prepare(choice, acceptMs), choice, attempt);
    } catch (error) {
      const unfit = asUnfit(error);
      if (unfit === undefined) throw error;
      this.#unfit = unfit.message;
      this.#rejected.add(choice.node.session);
      throw unfit;
    }
  }

  async #begin(context: DispatchContext, choice: C, attempt: AttemptPlan): Promise<StartedResponse<A>> {
    this.#running = this.#host.dispatchHost(context);
    if (this.#running.left()) throw new AttemptError('cancelled', 'the client left'); // it cannot cancel what begins now
    const begun = await this.#running.attempt(choice, attempt);
    const { status, head } = begun.answer;
    if (status === 200 && isEventStream(head)) return begun;
    await begun.answer.cancel();
    if (!mayTryAnotherAfter(status)) throw new Unfit(`the next engine answered with status ${status}`);
    this.#busyStatus = status;
    throw new AttemptError('overloaded', `the next engine answered with status ${status}`);
  }
}

/** A node that refuses a sealed stream would refuse it again; why is told to no one. */
function asUnfit(error: unknown): Unfit | undefined {
  if (error instanceof Unfit) return error;
  const isRefused = error instanceof AttemptError && error.code === 'seal_refused';
  return isRefused ? new Unfit('no other node that it is sealed to could go on with it') : undefined;
}
