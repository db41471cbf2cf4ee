/**
 * Finds the node that answers a request (docs/architecture.md, "Life of a request", 5). No I/O, clock or randomness.
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

/** Extended by hosts whose choice includes more: the model, the policy. */
export interface DispatchTarget<N = Asked> {
  node: N;
  /** Another node could be asked instead. */
  others: boolean;
}

interface Asked {
  readonly session: string;
}

/** How to try a node once. */
export interface AttemptPlan {
  /** Starts at 1; identifies the attempt to its node. */
  number: number;
  /** Time limit for the acknowledgment of its opening. */
  acceptMs: number;
  /** Another node can take the request, even after the engine received all of it. */
  movable: boolean;
  /** It hung at the previous node. */
  moved: boolean;
}

/** What `dispatch` needs for one request: the nodes of its route, and callbacks for what happens there. */
export interface DispatchHost<C extends DispatchTarget, A extends ResponseStream> {
  /** The node for the next attempt, not one of `tried`. Returns a promise if the request has to wait for a place. */
  choose(tried: ReadonlySet<string>): C | undefined | Promise<C | undefined>;
  /** Resolves with an answer that may be sent to the client. @throws AttemptError if the node gave none */
  attempt(choice: C, attempt: AttemptPlan): Promise<StartedResponse<A>>;
  /** The attempt failed on its way. */
  onFailure(choice: C, code: AttemptFailure): void;
  /** The node is done with this request. Called once per attempt; for the answer that was sent, at its end. */
  onEnd(choice: C, ending: RequestOutcome): void;
  /** Number of the first attempt if others were made before; default 1. */
  readonly first?: number;
  /** Retries after the first attempt. Refusals by a node do not count. */
  readonly retriesMax: number;
  /** Takes one retry from the retry budget of all requests; false if the budget is used up. */
  mayRetry(): boolean;
  /** Another attempt can have the whole body. */
  repeatable(): boolean;
  /** The client left: no further node is asked. */
  left(): boolean;
  /** Calls when the client leaves. Some runtimes then stop everything that the request was doing, at any point. */
  whenLeft(call: () => void): void;
  /** The client's error, after the last `failure`, or without one if there was no node from the start. */
  refusal(failure: AttemptError | undefined): ApiError;
}

/**
 * Tries nodes until one answers. Nothing is sent to the client before this returns.
 * @throws ApiError if none answered, AttemptError `cancelled` if the client left
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
  host.whenLeft(() => running?.end('left'));
  for (let retries = 0, passed = 0; retries <= retriesMax && passed <= SKIPS_MAX; ) {
    const chosen = host.choose(tried);
    const choice = chosen instanceof Promise ? await chosen : chosen;
    if (choice === undefined || host.left() || (again && !host.mayRetry())) break;
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
      again = false; // The budget was charged already.
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
  if (host.left()) throw new AttemptError('cancelled', 'the client left');
  const refusal = host.refusal(failure);
  throw failure !== undefined && wouldRepeatWork(failure.code, worked) ? refusal.withoutClientRetry() : refusal;
}

/** One attempt, until its node is done with the request. */
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
 * An answer that may be sent: its head is the engine's, `chunks` were read already. The owner must read or cancel it.
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

  /** The data after `chunks`; undefined at the complete end. @throws AttemptError if the rest is lost */
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

  /** Like `read` to the complete end, for an owner that lets `pass` transfer the rest. @throws what `pass` throws */
  async through(pass: (answer: A) => Promise<void>): Promise<void> {
    try {
      await pass(this.answer);
      this.#attempt.end(requestOutcome(this.answer.status));
    } catch (error) {
      if (error instanceof AttemptError) this.#attempt.end(requestOutcome(error.code));
      throw error;
    }
  }

  /** The reader stops. */
  cancel(): Promise<void> | void {
    this.#attempt.end('left');
    return this.answer.cancel();
  }
}
