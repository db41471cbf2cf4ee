/** Finds the node that continues a stream after it lost its node, and sends it the request. */

import { AttemptError } from '../attempts/attempt-error.ts';
import type { AttemptFailure } from '../attempts/attempt-request.ts';
import {
  type AttemptPlan,
  type DispatchHost,
  type DispatchTarget,
  dispatch,
  type UpstreamResponse,
} from '../attempts/dispatch.ts';
import type { DispatchContext } from '../attempts/dispatch-context.ts';
import { isEventStream, type ResponseStream, type StartedResponse } from '../attempts/started-response.ts';
import { ApiError } from '../openai/api-errors.ts';
import { mayRetryAfterStatus, type RequestOutcome, requestOutcome } from '../routing/retry-policy.ts';
import type { StartTimer } from '../timing/start-timer.ts';
import type { BuildContinuation } from './continued-stream.ts';
import { CannotContinueError } from './engine-tokenizer.ts';

/**
 * Maximum number of nodes that are rejected because their engines cannot continue, or tokenize the text differently.
 * Each costs some tokenizer requests.
 */
const REJECTED_MAX = 4;

/** What finding a successor needs from its host. */
export interface ResumeHost<C extends DispatchTarget, A extends ResponseStream> {
  /** How this host tries nodes for any request. */
  attempts(context: DispatchContext): DispatchHost<C, A>;
  /** Sessions that serve the model in another revision or quantization than the first node. */
  unlike(): Iterable<string>;
  /** Returns a name for attempts, and a receipt without an account, for a request that is not charged. */
  unpaid(): { name: string; receipt: string };
  /**
   * Calls `tryNodes`, and calls it again whenever it is this stream's turn in the queue. Rejects with the last try's
   * error, or with the error that ended the wait.
   * @param rejected returns the nodes that this stream cannot use although other requests could
   */
  inTurn(
    tryNodes: () => Promise<UpstreamResponse<C, A>>,
    rejected: () => readonly string[],
  ): Promise<UpstreamResponse<C, A>>;
  /** True if a node has just refused the request because it was full. */
  busy(): boolean;
  /** Interval at which the client of a waiting stream gets a comment. */
  pingMs: number;
  timer: StartTimer;
}

interface BrokenStream<C extends DispatchTarget> {
  context: DispatchContext;
  prepare: BuildContinuation<C>;
  /**
   * Nodes that broke the stream or cannot continue it. A node that only refused the request may accept it after the
   * next break.
   */
  excluded: Set<string>;
  /** Number of attempts made for this request, so that the next one gets a new number. */
  attempts: number;
}

export interface Successor<C extends DispatchTarget, A extends ResponseStream> {
  response: UpstreamResponse<C, A>;
}

/**
 * @returns the next node's response, or why there is none
 * @throws AttemptError `cancelled` if the client disconnected
 */
export async function findSuccessor<C extends DispatchTarget, A extends ResponseStream>(
  broken: BrokenStream<C>,
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
    throw error; // The client disconnected.
  }
}

class Search<C extends DispatchTarget, A extends ResponseStream> implements DispatchHost<C, A> {
  readonly #broken: BrokenStream<C>;
  readonly #host: ResumeHost<C, A>;
  /** The host that makes attempts as for a request without a break. */
  #usual: DispatchHost<C, A>;
  /** The host that made the current attempt, and that is informed of its end. */
  #running: DispatchHost<C, A> | undefined;
  /** Status with which an engine answered that it cannot take the request now. */
  #busyStatus: number | undefined;
  readonly #tried: Set<string>;
  readonly #rejected = new Set<string>();
  /** The reason why the last rejected node cannot continue. */
  #unfit: string | undefined;
  /** The error of the last try. */
  #last: ApiError | undefined;
  #rounds = 0;

  constructor(broken: BrokenStream<C>, host: ResumeHost<C, A>) {
    this.#broken = broken;
    this.#host = host;
    this.#usual = host.attempts(broken.context);
    this.#tried = new Set(broken.excluded);
  }

  get rejected(): readonly string[] {
    return [...this.#rejected];
  }

  /** Tries the current nodes once. */
  async tryNodes(): Promise<UpstreamResponse<C, A>> {
    // After a wait, nodes that failed before may be healthy again. Before the first wait, nodes that failed are not
    // tried again.
    if (this.#rounds++ > 0) this.#tried.clear();
    for (;;) {
      const before = this.#rejected.size;
      try {
        this.#usual = this.#host.attempts(this.#broken.context);
        return await dispatch(this);
      } catch (error) {
        if (this.#rejected.size === before) throw error;
        if (this.#rejected.size >= REJECTED_MAX) throw this.#noSuccessorError();
      }
    }
  }

  #noSuccessorError(): ApiError {
    this.#last = new ApiError('upstream_error', this.#unfit ?? '');
    return this.#last;
  }

  /** The reason that the client gets if no node continues the stream. */
  why(error: ApiError): string {
    const { code, cause } = error;
    if (code === 'queue_full') return 'too many requests already wait for a node';
    if (error !== this.#last) return 'no node that could continue it became free in time';
    if (cause instanceof AttemptError) {
      return cause.code === 'overloaded' ? 'the other nodes are full' : 'the other nodes failed too';
    }
    return this.#unfit ?? 'no other node serves the same revision and quantization of the model';
  }

  choose(round: ReadonlySet<string>): C | undefined | Promise<C | undefined> {
    return this.#usual.choose(new Set([...round, ...this.#tried, ...this.#rejected, ...this.#host.unlike()]));
  }

  onFailure(choice: C, code: AttemptFailure): void {
    if (code !== 'cancelled') this.#usual.onFailure(choice, code);
  }

  onEnd(choice: C, ending: RequestOutcome): void {
    this.#running?.onEnd(choice, this.#busyStatus === undefined ? ending : requestOutcome(this.#busyStatus));
    this.#running = undefined;
    this.#busyStatus = undefined;
  }

  get first(): number {
    return this.#usual.first ?? 1;
  }

  get retriesMax(): number {
    return this.#usual.retriesMax;
  }

  mayRetry(): boolean {
    return this.#usual.mayRetry();
  }

  repeatable(): boolean {
    return true;
  }

  clientDisconnected(): boolean {
    return this.#usual.clientDisconnected();
  }

  onDisconnect(call: () => void): void {
    this.#usual.onDisconnect(call);
  }

  refusal(failure: AttemptError | undefined): ApiError {
    // An unfit node stays unfit, so waiting helps only if there are other nodes.
    const noSuccessorError = failure === undefined && this.#unfit !== undefined && !this.#host.busy();
    this.#last = noSuccessorError ? this.#noSuccessorError() : this.#usual.refusal(failure);
    return this.#last;
  }

  async attempt(choice: C, { acceptMs, movable, moved }: AttemptPlan): Promise<StartedResponse<A>> {
    const { prepare, excluded } = this.#broken;
    this.#tried.add(choice.node.session);
    const attempt = { number: ++this.#broken.attempts, acceptMs, movable, moved };
    try {
      return await this.#begin(await prepare(choice, acceptMs), choice, attempt);
    } catch (error) {
      const unfit = asUnfit(error);
      if (unfit === undefined) throw error;
      this.#unfit = unfit.message;
      this.#rejected.add(choice.node.session);
      excluded.add(choice.node.session);
      throw unfit;
    }
  }

  async #begin(context: DispatchContext, choice: C, attempt: AttemptPlan): Promise<StartedResponse<A>> {
    this.#running = this.#host.attempts(context);
    // If the client has already disconnected, its callback cannot cancel an attempt that starts now.
    if (this.#running.clientDisconnected()) throw new AttemptError('cancelled', 'the client disconnected');
    const begun = await this.#running.attempt(choice, attempt);
    const { status, head } = begun.answer;
    if (status === 200 && isEventStream(head)) return begun;
    await begun.answer.cancel();
    if (!mayRetryAfterStatus(status)) throw new CannotContinueError(`the next engine answered with status ${status}`);
    this.#busyStatus = status;
    throw new AttemptError('overloaded', `the next engine answered with status ${status}`);
  }
}

/** A node that refuses a sealed stream would refuse it again, so it counts as unfit. It never discloses the reason. */
function asUnfit(error: unknown): CannotContinueError | undefined {
  if (error instanceof CannotContinueError) return error;
  const isRefused = error instanceof AttemptError && error.code === 'seal_refused';
  return isRefused ? new CannotContinueError('no other node that it is sealed to could continue it') : undefined;
}
