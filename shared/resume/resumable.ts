/** A stream that goes on where its node is gone: on another one, with the client none the wiser. */

import { isSlower } from '../collections/timer.ts';
import { JoinedStream } from '../openai/continuation/joined.ts';
import { type Plan, planContinuation } from '../openai/continuation/plan.ts';
import { estimateTokens } from '../openai/usage.ts';
import { mayTryAnother } from '../routing/attempts.ts';
import { AttemptError } from '../upstream/attempt-error.ts';
import type { BudgetShare } from '../upstream/byte-budget.ts';
import type { Choice, UpstreamResponse } from '../upstream/dispatch.ts';
import type { DispatchContext } from '../upstream/dispatch-context.ts';
import { isEventStream, type ResponseStream } from '../upstream/response.ts';
import { Silence } from './silence.ts';
import { findSuccessor, type ResumeHost, type Successor } from './successor.ts';

/** A stream that broke so often breaks what carries it. */
const CONTINUED_MAX = 3;

/** What of a delivery goes out to a client, whichever node the rest comes from. */
export type ReadableResponse<C extends Choice, A extends ResponseStream> = Pick<
  UpstreamResponse<C, A>,
  'answer' | 'choice' | 'attempts' | 'chunks' | 'complete' | 'read' | 'cancel'
>;

/** Larger bodies are parsed by nobody here. */
const BODY_MAX_BYTES = 1024 * 1024;

/** A client hears a comment after twice this without data: the line to the node may be lost, which takes up to 27 s to find out. */
const SILENCE_MS = 4_000;

const FULL = 'too much is kept for other streams already';

const NOTHING = new Uint8Array(0);
const encoder = new TextEncoder();

/**
 * `delivery` as it is, or one that outlives its node. Where the request is of a kind that cannot be continued, a break is told with
 * the reason.
 */
export function resumable<C extends Choice, A extends ResponseStream>(
  delivery: UpstreamResponse<C, A>,
  context: DispatchContext,
  means: ResumeHost<C, A>,
  share: BudgetShare,
): ReadableResponse<C, A> {
  const { answer, complete } = delivery;
  if (complete || answer.status !== 200 || !isEventStream(answer.head)) return delivery;
  const { body } = context.parsed;
  if (body.kind !== 'kept' || context.parsed.unseen) return explained(delivery, 'its body was not looked into');
  if (body.bytes.length > BODY_MAX_BYTES) return explained(delivery, 'its body is too large');
  const plan = planContinuation(context.endpoint, body.bytes);
  if ('why' in plan) return explained(delivery, plan.why);
  if (!share.grow(body.bytes.length)) return explained(delivery, FULL);
  return new ResumableResponse(delivery, { context, means, share }, plan, body.bytes);
}

/** One that ends with its node, and says why it does. */
function explained<C extends Choice, A extends ResponseStream>(
  delivery: UpstreamResponse<C, A>,
  why: string,
): ReadableResponse<C, A> {
  const { answer, choice, attempts, chunks, complete } = delivery;
  const read = () => delivery.read().catch((error: unknown) => Promise.reject(withReason(error, why)));
  return { answer, choice, attempts, chunks, complete, read, cancel: () => delivery.cancel() };
}

function withReason(error: unknown, why: string): unknown {
  if (!(error instanceof AttemptError) || !mayTryAnother(error.code)) return error;
  return new AttemptError(error.code, error.message, `It was not continued on another node: ${why}.`);
}

interface Part<C extends Choice, A extends ResponseStream> {
  context: DispatchContext;
  means: ResumeHost<C, A>;
  /** Bytes that are kept for streams that may have to be continued. */
  share: BudgetShare;
}

class ResumableResponse<C extends Choice, A extends ResponseStream> implements ReadableResponse<C, A> {
  readonly answer: A;
  readonly choice: C;
  readonly attempts: number;
  readonly chunks: Uint8Array[];
  readonly complete = false;
  readonly #context: DispatchContext;
  readonly #means: ResumeHost<C, A>;
  readonly #share: BudgetShare;
  /** The request's body. */
  readonly #body: Uint8Array;
  readonly #plan: Pick<Plan, 'limit'>;
  readonly #joined: JoinedStream;
  readonly #tried: Set<string>;
  #current: UpstreamResponse<C, A>;
  /** Attempts so far, of all searches. */
  #made: number;
  #continued = 0;
  /** What breaks off is on its way to the next node, or waits for one. */
  #seeking: Promise<void> | undefined;
  /** May go out; as much as one chunk made. */
  readonly #ready: Uint8Array[] = [];
  #over = false;
  readonly #silence: Silence;
  /** The chunk that is waited for. */
  #advancing: Promise<AttemptError | undefined> | undefined;

  constructor(first: UpstreamResponse<C, A>, { context, means, share }: Part<C, A>, plan: Plan, body: Uint8Array) {
    this.answer = first.answer;
    this.choice = first.choice;
    this.attempts = first.attempts;
    this.#context = context;
    this.#means = means;
    this.#share = share;
    this.#silence = new Silence(SILENCE_MS, means.after);
    this.#body = body;
    this.#plan = { limit: plan.limit };
    this.#joined = new JoinedStream(plan);
    this.#tried = new Set([first.choice.node.session]);
    this.#made = first.attempts;
    this.#current = first;
    this.chunks = first.chunks.flatMap((chunk) => this.#joined.push(chunk));
  }

  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      const ready = this.#ready.shift();
      if (ready !== undefined) return ready;
      if (this.#over) return undefined;
      if (this.#seeking !== undefined) {
        const { pingMs, after } = this.#means;
        if (await isSlower(this.#seeking, pingMs, after)) return this.#context.endpoint.ping;
        await this.#seeking;
        this.#seeking = undefined;
        continue;
      }
      this.#advancing ??= this.#advance();
      // A comment stands between events, and in a stream that passes unread nobody knows where that is.
      if ((await this.#silence.outlasts(this.#advancing)) && this.#joined.readsEvents)
        return this.#context.endpoint.ping;
      const broke = await this.#advancing;
      this.#advancing = undefined;
      if (broke !== undefined) this.#seeking = this.#goOn(broke);
    }
  }

  /** One chunk further. @returns how the stream broke, if it did */
  async #advance(): Promise<AttemptError | undefined> {
    const joined = this.#joined;
    try {
      // The first chunk may have been one already.
      const chunk = joined.fault === undefined ? await this.#current.read() : NOTHING;
      if (chunk === undefined) return this.#end();
      this.#ready.push(...joined.push(chunk));
    } catch (error) {
      if (!(error instanceof AttemptError)) throw error;
      return joined.done ? this.#end() : error;
    }
    if (!this.#share.grow(this.#body.length + 2 * joined.textChars)) joined.forbid(FULL);
    if (joined.fault === undefined) return undefined;
    await this.#current.cancel();
    return new AttemptError('failed', joined.fault);
  }

  /** The engine says no more. An end without the terminal event is none, where that could be seen. */
  #end(): AttemptError | undefined {
    const { done, obstacle } = this.#joined;
    if (!done && obstacle === undefined) return new AttemptError('engine_closed', 'the stream ended without its end');
    this.#finish();
    return undefined;
  }

  #finish(): void {
    this.#over = true;
    this.#silence.end();
    this.#share.release();
  }

  async #goOn(broke: AttemptError): Promise<void> {
    const joined = this.#joined;
    if (!mayTryAnother(broke.code)) return this.#giveUp(broke);
    const cut = this.#plan.limit !== undefined && joined.textEvents >= this.#plan.limit;
    if (joined.finished || cut) {
      this.#ready.push(...joined.ending(estimateTokens(this.#body.length), joined.textEvents));
      return this.#finish();
    }
    if (joined.obstacle !== undefined) return this.#giveUp(broke, joined.obstacle);
    if (this.#continued >= CONTINUED_MAX) return this.#giveUp(broke, `it broke off ${CONTINUED_MAX + 1} times`);
    const next = await this.#successor();
    if (this.#over) return 'why' in next ? undefined : void (await next.delivery.cancel()); // nobody reads any more
    if ('why' in next) return this.#giveUp(broke, next.why);
    this.#take(next);
  }

  async #successor(): Promise<Successor<C, A> | { why: string }> {
    const { text, textEvents } = this.#joined;
    // Looked into anew: what was parsed of the body is not kept beside its bytes for as long as the stream runs.
    const plan = planContinuation(this.#context.endpoint, this.#body);
    if ('why' in plan) return plan;
    const broken = {
      context: this.#context,
      body: this.#body,
      plan,
      text,
      textEvents,
      tried: this.#tried,
      attempts: this.#made,
    };
    const found = await findSuccessor(broken, this.#means);
    this.#made = broken.attempts;
    return found;
  }

  #take({ delivery, produced }: Successor<C, A>): void {
    this.#continued++;
    this.#current = delivery;
    this.#joined.continueWith(produced);
    const { session } = delivery.choice.node;
    this.#ready.push(encoder.encode(`: otela continued node=${session} attempts=${this.#made}\n\n`));
    for (const chunk of delivery.chunks) this.#ready.push(...this.#joined.push(chunk));
  }

  /** The engine's own words, where it had any, else ours. @throws AttemptError */
  #giveUp(broke: AttemptError, why?: string): void {
    const { withheld } = this.#joined;
    this.#finish();
    if (withheld === undefined) throw why === undefined ? broke : withReason(broke, why);
    this.#ready.push(withheld);
  }

  cancel(): Promise<void> | void {
    this.#finish();
    return this.#current.cancel();
  }
}
