/** A stream that continues on another node after its node is gone, without the client noticing. */

import { AttemptError } from '../attempts/attempt-error.ts';
import type { BudgetShare } from '../attempts/byte-budget.ts';
import type { DispatchTarget, UpstreamResponse } from '../attempts/dispatch.ts';
import type { DispatchContext } from '../attempts/dispatch-context.ts';
import { isEventStream, type ResponseStream } from '../attempts/started-response.ts';
import { planContinuation } from '../openai/continuation/continuation-plan.ts';
import { mayRetry } from '../routing/retry-policy.ts';
import { timesOut } from '../timing/start-timer.ts';
import type { ContinuedStream } from './continued-stream.ts';
import { findSuccessor, type ResumeHost, type Successor } from './find-successor.ts';
import { SealedStream } from './sealed-stream.ts';
import { SilenceDetector } from './silence-detector.ts';
import { UnsealedStream } from './unsealed-stream.ts';

/** Maximum number of continuations of one stream. If it breaks more often, the stream itself is probably the cause. */
const CONTINUED_MAX = 3;

/**
 * The members of a response that its sender uses. They are the same whether one node sends the whole response or
 * another node continues it.
 */
export type ReadableResponse<C extends DispatchTarget, A extends ResponseStream> = Pick<
  UpstreamResponse<C, A>,
  'answer' | 'choice' | 'attempts' | 'chunks' | 'complete' | 'read' | 'cancel'
>;

/** Maximum length of a body that is parsed here. */
const BODY_MAX_BYTES = 1024 * 1024;

/**
 * If no data arrives for one to two times this long, the client gets a comment. The node's connection may be lost,
 * which takes up to 27 s to detect.
 */
const SILENCE_MS = 4_000;

const FULL = 'the memory for resumable streams is full';

const NOTHING = new Uint8Array(0);

/**
 * Returns `response` itself, or a response that continues on another node if its node is lost. If the request cannot be
 * continued, a break is reported with the reason.
 */
export function resumable<C extends DispatchTarget, A extends ResponseStream>(
  response: UpstreamResponse<C, A>,
  context: DispatchContext,
  host: ResumeHost<C, A>,
  share: BudgetShare,
): ReadableResponse<C, A> {
  const { answer, complete } = response;
  if (complete || answer.status !== 200 || !isEventStream(answer.head)) return response;
  const { body, sealed, unseen } = context.parsed;
  if (body.kind !== 'kept' || (unseen && sealed === undefined))
    return explained(response, 'the gateway did not read its body');
  if (body.bytes.length > BODY_MAX_BYTES) return explained(response, 'its body is too large');
  const stream =
    sealed === undefined ? clearStream(context, body.bytes, host) : new SealedStream<C>(context, body.bytes);
  if ('why' in stream) return explained(response, stream.why);
  if (!share.grow(body.bytes.length)) return explained(response, FULL);
  return new ResumableResponse(response, { context, host, share, stream });
}

function clearStream<C extends DispatchTarget, A extends ResponseStream>(
  context: DispatchContext,
  body: Uint8Array,
  host: ResumeHost<C, A>,
): ContinuedStream<C> | { why: string } {
  const plan = planContinuation(context.endpoint, body);
  return 'why' in plan ? plan : new UnsealedStream(context, body, plan, host);
}

/** A response that ends with its node and reports why. */
function explained<C extends DispatchTarget, A extends ResponseStream>(
  response: UpstreamResponse<C, A>,
  why: string,
): ReadableResponse<C, A> {
  const { answer, choice, attempts, chunks, complete } = response;
  const read = () => response.read().catch((error: unknown) => Promise.reject(withReason(error, why)));
  return { answer, choice, attempts, chunks, complete, read, cancel: () => response.cancel() };
}

function withReason(error: unknown, why: string): unknown {
  if (!(error instanceof AttemptError) || !mayRetry(error.code)) return error;
  return new AttemptError(error.code, error.message, `It was not continued on another node: ${why}.`);
}

interface Part<C extends DispatchTarget, A extends ResponseStream> {
  context: DispatchContext;
  host: ResumeHost<C, A>;
  /** The stream's share of the memory for streams that may have to be continued. */
  share: BudgetShare;
  stream: ContinuedStream<C>;
}

class ResumableResponse<C extends DispatchTarget, A extends ResponseStream> implements ReadableResponse<C, A> {
  readonly answer: A;
  readonly choice: C;
  readonly attempts: number;
  readonly chunks: Uint8Array[];
  readonly complete = false;
  readonly #context: DispatchContext;
  readonly #host: ResumeHost<C, A>;
  readonly #share: BudgetShare;
  readonly #stream: ContinuedStream<C>;
  /** Nodes that are tried only after a wait. */
  readonly #excluded: Set<string>;
  #current: UpstreamResponse<C, A>;
  /** Number of attempts so far, in all searches. */
  #made: number;
  #continued = 0;
  /** Set while a broken stream is moved to the next node, or waits for one. */
  #search: Promise<void> | undefined;
  /** Bytes that are ready to be sent; at most the output of one chunk. */
  readonly #ready: Uint8Array[] = [];
  #finished = false;
  readonly #silence: SilenceDetector;
  /** The read of the next chunk, while it is pending. */
  #advancing: Promise<AttemptError | undefined> | undefined;

  constructor(first: UpstreamResponse<C, A>, { context, host, share, stream }: Part<C, A>) {
    this.answer = first.answer;
    this.choice = first.choice;
    this.attempts = first.attempts;
    this.#context = context;
    this.#host = host;
    this.#share = share;
    this.#silence = new SilenceDetector(SILENCE_MS, host.timer);
    this.#stream = stream;
    this.#excluded = new Set([first.choice.node.session]);
    this.#made = first.attempts;
    this.#current = first;
    this.chunks = first.chunks.flatMap((chunk) => stream.push(chunk));
  }

  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      const ready = this.#ready.shift();
      if (ready !== undefined) return ready;
      if (this.#finished) return undefined;
      if (this.#search !== undefined) {
        const { pingMs, timer } = this.#host;
        if (await timesOut(this.#search, pingMs, timer)) return this.#stream.ping;
        await this.#search;
        this.#search = undefined;
        continue;
      }
      this.#advancing ??= this.#advance();
      if ((await this.#silence.outlasts(this.#advancing)) && this.#stream.atBoundary) return this.#stream.ping;
      const broke = await this.#advancing;
      this.#advancing = undefined;
      if (broke !== undefined) this.#search = this.#continueElsewhere(broke);
    }
  }

  /** Reads one chunk. @returns how the stream broke, if it did */
  async #advance(): Promise<AttemptError | undefined> {
    const stream = this.#stream;
    try {
      // The response of the next node may have had a fault in its first chunk. Then nothing more is read from it.
      const chunk = stream.fault === undefined ? await this.#current.read() : NOTHING;
      if (chunk === undefined) return this.#end();
      this.#ready.push(...stream.push(chunk));
    } catch (error) {
      if (!(error instanceof AttemptError)) throw error;
      return stream.done ? this.#end() : error;
    }
    if (!this.#share.grow(stream.keptBytes)) stream.forbid(FULL);
    if (stream.fault === undefined) return undefined;
    await this.#current.cancel();
    return new AttemptError('failed', stream.fault);
  }

  /**
   * Called when the engine's response has ended. If the events are parsed and the terminal event is missing, the stream
   * broke.
   */
  #end(): AttemptError | undefined {
    const { done, obstacle } = this.#stream;
    if (!done && obstacle === undefined)
      return new AttemptError('engine_closed', 'the stream ended without its last event');
    this.#finish();
    return undefined;
  }

  #finish(): void {
    this.#finished = true;
    this.#silence.end();
    this.#share.release();
  }

  async #continueElsewhere(broke: AttemptError): Promise<void> {
    const stream = this.#stream;
    if (!mayRetry(broke.code)) return this.#giveUp(broke);
    const ending = stream.ending();
    if (ending !== undefined) {
      this.#ready.push(...ending);
      return this.#finish();
    }
    if (stream.obstacle !== undefined) return this.#giveUp(broke, stream.obstacle);
    if (this.#continued >= CONTINUED_MAX) return this.#giveUp(broke, `it broke off ${CONTINUED_MAX + 1} times`);
    const next = await this.#successor();
    // The reader stopped during the search, so the next node's response is not needed.
    if (this.#finished) return 'why' in next ? undefined : void (await next.response.cancel());
    if ('why' in next) return this.#giveUp(broke, next.why);
    this.#take(next.response);
  }

  async #successor(): Promise<Successor<C, A> | { why: string }> {
    const broken = {
      context: this.#context,
      prepare: this.#stream.continuation(),
      excluded: this.#excluded,
      attempts: this.#made,
    };
    const found = await findSuccessor(broken, this.#host);
    this.#made = broken.attempts;
    return found;
  }

  #take(response: UpstreamResponse<C, A>): void {
    this.#continued++;
    this.#current = response;
    this.#excluded.add(response.choice.node.session);
    this.#ready.push(...this.#stream.continueAt(response.choice.node.session, this.#made));
    for (const chunk of response.chunks) this.#ready.push(...this.#stream.push(chunk));
  }

  /** Ends the stream with the engine's own error if the engine sent one, otherwise with ours. @throws AttemptError */
  #giveUp(broke: AttemptError, why?: string): void {
    const { withheld } = this.#stream;
    this.#finish();
    if (withheld === undefined) throw why === undefined ? broke : withReason(broke, why);
    this.#ready.push(withheld);
  }

  cancel(): Promise<void> | void {
    this.#finish();
    return this.#current.cancel();
  }
}
