/**
 * Finds the node that answers a request (docs/architecture.md, "Life of a request"). No I/O, clock or randomness.
 */
import type { ApiError } from '../openai/api-errors.ts';
import {
  endsBeforeEngine,
  isFreeSkip,
  mayRetry,
  mayRetryAfterStatus,
  type RequestOutcome,
  repeatsWork,
  requestOutcome,
  SKIPS_MAX,
  wouldRepeatWork,
} from '../routing/retry-policy.ts';
import { RESUME_WINDOW_MS } from '../wire/protocol-constants.ts';
import { ACCEPT_MS } from './accept-timeout.ts';
import { AttemptError } from './attempt-error.ts';
import type { AttemptFailure } from './attempt-request.ts';
import type { ResponseStream, StartedResponse } from './started-response.ts';

/** A node to try. Each host adds its own fields to the choice, such as the model and the policy. */
export interface DispatchTarget<N = AttemptedNode> {
  node: N;
  /** True if another node could get the request instead. */
  others: boolean;
}

interface AttemptedNode {
  readonly session: string;
}

/** The parameters of one attempt at a node. */
export interface AttemptPlan {
  /** Number of the attempt, starting at 1. Identifies the attempt to its node. */
  number: number;
  /** Time limit in milliseconds for the node to acknowledge the opening. */
  acceptMs: number;
  /** True if another node can take the request even after this engine has received all of it. */
  movable: boolean;
  /** True if the previous node's engine hung on this request. */
  moved: boolean;
}

/** The environment of `dispatch` for one request: the nodes of its route, and callbacks for each event. */
export interface DispatchHost<C extends DispatchTarget, A extends ResponseStream> {
  /**
   * Returns the node for the next attempt, not one of `tried`; a promise if the request has to wait for a free node.
   */
  choose(tried: ReadonlySet<string>): C | undefined | Promise<C | undefined>;
  /** Resolves with an answer that may be sent to the client. @throws AttemptError if the node gave none */
  attempt(choice: C, attempt: AttemptPlan): Promise<StartedResponse<A>>;
  /** Called when the attempt failed with an AttemptError. */
  onFailure(choice: C, code: AttemptFailure): void;
  /**
   * Called once per attempt, when its node has finished with this request. For the attempt that answers the client,
   * that is at the end of its answer.
   */
  onEnd(choice: C, ending: RequestOutcome): void;
  /** Number of the first attempt, if attempts were made before; default 1. */
  readonly first?: number;
  /**
   * Maximum number of retries after the first attempt. Retries after a node refused the request before its engine was
   * asked do not count; SKIPS_MAX limits them.
   */
  readonly retriesMax: number;
  /** Takes one retry from the retry budget of all requests; false if the budget is used up. */
  mayRetry(): boolean;
  /** True if another attempt can send the whole body. */
  repeatable(): boolean;
  /** True if the client has disconnected. Then no further node gets the request. */
  clientDisconnected(): boolean;
  /**
   * Registers a callback for the client's disconnect. It must run immediately, because after a disconnect some runtimes
   * stop all work of the request at any point.
   */
  onDisconnect(call: () => void): void;
  /**
   * The error for the client after the last `failure`, which is undefined if there was no node for the first attempt.
   */
  refusal(failure: AttemptError | undefined): ApiError;
}

/**
 * Tries nodes until one answers. Nothing is sent to the client before this returns.
 * @throws ApiError if no node answered, AttemptError `cancelled` if the client disconnected
 */
export async function dispatch<C extends DispatchTarget, A extends ResponseStream>(
  host: DispatchHost<C, A>,
): Promise<UpstreamResponse<C, A>> {
  const { retriesMax, first = 1 } = host;
  const tried = new Set<string>();
  let running: RunningAttempt<C, A> | undefined;
  let failure: AttemptError | undefined;
  let worked = 0;
  let again = false;
  let moved = false;
  host.onDisconnect(() => running?.end('left'));
  for (let retries = 0, passed = 0; retries <= retriesMax && passed <= SKIPS_MAX; ) {
    const chosen = host.choose(tried);
    const choice = chosen instanceof Promise ? await chosen : chosen;
    if (choice === undefined || host.clientDisconnected() || (again && !host.mayRetry())) break;
    tried.add(choice.node.session);
    const number = first + tried.size - 1;
    const more = choice.others && retries < retriesMax;
    running = new RunningAttempt(host, choice);
    try {
      const acceptMs = more ? ACCEPT_MS : RESUME_WINDOW_MS;
      const movable = more && host.repeatable();
      const begun = await host.attempt(choice, { number, acceptMs, movable, moved });
      const refused = mayRetryAfterStatus(begun.answer.status);
      if (!refused || !more || !host.repeatable() || !host.mayRetry())
        return new UpstreamResponse(begun, running, number);
      running.end(requestOutcome(begun.answer.status));
      await begun.answer.cancel();
      again = false; // The retry budget was charged already.
      retries++;
    } catch (error) {
      if (!(error instanceof AttemptError)) {
        running.end('failed');
        throw error;
      }
      failure = error;
      if (!endsBeforeEngine(error.code)) worked++;
      running.end(requestOutcome(error.code));
      host.onFailure(choice, error.code);
      if (!mayRetry(error.code) || !host.repeatable()) break;
      moved ||= error.code === 'hung';
      if (isFreeSkip(error.code)) passed++;
      else retries++;
      again = repeatsWork(error.code);
    }
  }
  if (host.clientDisconnected()) throw new AttemptError('cancelled', 'the client disconnected');
  const refusal = host.refusal(failure);
  throw failure !== undefined && wouldRepeatWork(failure.code, worked) ? refusal.withoutClientRetry() : refusal;
}

/** One attempt, until its node has finished with the request. */
class RunningAttempt<C extends DispatchTarget, A extends ResponseStream> {
  readonly choice: C;
  readonly #host: DispatchHost<C, A>;
  #finished = false;

  constructor(host: DispatchHost<C, A>, choice: C) {
    this.#host = host;
    this.choice = choice;
  }

  end(ending: RequestOutcome): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#host.onEnd(this.choice, ending);
  }
}

/**
 * An answer that may be sent to the client. The head is the engine's, and `chunks` were read already. The owner must
 * read or cancel it.
 */
export class UpstreamResponse<C extends DispatchTarget, A extends ResponseStream> implements StartedResponse<A> {
  readonly answer: A;
  readonly choice: C;
  readonly attempts: number;
  readonly chunks: Uint8Array[];
  readonly complete: boolean;
  readonly #attempt: RunningAttempt<C, A>;

  constructor({ answer, chunks, complete }: StartedResponse<A>, running: RunningAttempt<C, A>, attempts: number) {
    this.answer = answer;
    this.choice = running.choice;
    this.attempts = attempts;
    this.chunks = chunks;
    this.complete = complete;
    this.#attempt = running;
    if (complete) running.end(requestOutcome(answer.status));
  }

  /** Returns the data after `chunks`; undefined at the complete end. @throws AttemptError if the rest is lost */
  async read(): Promise<Uint8Array | undefined> {
    if (this.complete) return undefined;
    try {
      const bytes = await this.answer.read();
      if (bytes === undefined) this.#attempt.end(requestOutcome(this.answer.status));
      return bytes;
    } catch (error) {
      if (error instanceof AttemptError) this.#attempt.end(requestOutcome(error.code));
      throw error;
    }
  }

  /** Lets `pass` transfer the rest of the answer to the client. @throws the error that `pass` throws */
  async through(pass: (answer: A) => Promise<void>): Promise<void> {
    try {
      await pass(this.answer);
      this.#attempt.end(requestOutcome(this.answer.status));
    } catch (error) {
      if (error instanceof AttemptError) this.#attempt.end(requestOutcome(error.code));
      throw error;
    }
  }

  /** Call when the reader stops reading. Cancels the engine's work. */
  cancel(): Promise<void> | void {
    this.#attempt.end('left');
    return this.answer.cancel();
  }
}
