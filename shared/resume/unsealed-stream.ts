/** An unsealed event stream. Its text so far becomes part of the next engine's prompt. */

import type { DispatchTarget } from '../attempts/dispatch.ts';
import { type DispatchContext, withBody } from '../attempts/dispatch-context.ts';
import type { ResponseStream } from '../attempts/started-response.ts';
import { continuationBody } from '../openai/continuation/continuation-bodies.ts';
import { type ContinuationPlan, planContinuation } from '../openai/continuation/continuation-plan.ts';
import { SplicedStream } from '../openai/continuation/spliced-stream.ts';
import { estimateTokens } from '../openai/token-usage.ts';
import type { BuildContinuation, ContinuedStream } from './continued-stream.ts';
import { CannotContinueError, Tokenizer } from './engine-tokenizer.ts';
import type { ResumeHost } from './find-successor.ts';

const encoder = new TextEncoder();

export class UnsealedStream<C extends DispatchTarget, A extends ResponseStream> implements ContinuedStream<C> {
  readonly #context: DispatchContext;
  /** The body as the client sent it. */
  readonly #body: Uint8Array;
  readonly #limit: number | undefined;
  readonly #host: ResumeHost<C, A>;
  readonly #joined: SplicedStream;
  /** Number of tokens of the text so far, as the next engine counts them. */
  #produced = 0;

  constructor(context: DispatchContext, body: Uint8Array, plan: ContinuationPlan, host: ResumeHost<C, A>) {
    this.#context = context;
    this.#body = body;
    this.#limit = plan.limit;
    this.#host = host;
    this.#joined = new SplicedStream(plan);
  }

  push(piece: Uint8Array): Uint8Array[] {
    return this.#joined.push(piece);
  }

  get done(): boolean {
    return this.#joined.done;
  }

  /** A comment may only be inserted between events. If the stream is not parsed, it is unknown where events end. */
  get atBoundary(): boolean {
    return this.#joined.readsEvents;
  }

  get ping(): Uint8Array {
    return this.#context.endpoint.ping;
  }

  get obstacle(): string | undefined {
    return this.#joined.obstacle;
  }

  get fault(): string | undefined {
    return this.#joined.fault;
  }

  get withheld(): Uint8Array | undefined {
    return this.#joined.withheld;
  }

  get keptBytes(): number {
    return this.#body.length + 2 * this.#joined.textChars;
  }

  forbid(why: string): void {
    this.#joined.forbid(why);
  }

  ending(): Uint8Array[] | undefined {
    const { finished, textEvents } = this.#joined;
    const cut = this.#limit !== undefined && textEvents >= this.#limit;
    return finished || cut ? this.#joined.ending(estimateTokens(this.#body.length), textEvents) : undefined;
  }

  continuation(): BuildContinuation<C> {
    // Parsed again when it is needed, so that the parsed body is not in memory for the duration of the stream.
    const plan = planContinuation(this.#context.endpoint, this.#body);
    if ('why' in plan) return () => Promise.reject(new CannotContinueError(plan.why));
    const { text, textEvents } = this.#joined;
    const { attempts, unpaid } = this.#host;
    const tokenizer = new Tokenizer({ context: this.#context, plan, text, attempts, unpaid });
    return async (choice, acceptMs) => {
      this.#produced = text === '' ? 0 : Math.max(textEvents, await tokenizer.count(choice, acceptMs));
      return withBody(this.#context, text === '' ? this.#body : continuationBody(plan, text, this.#produced));
    };
  }

  continueAt(session: string, attempts: number): Uint8Array[] {
    this.#joined.continueWith(this.#produced);
    return [encoder.encode(`: otela continued node=${session} attempts=${attempts}\n\n`)];
  }
}
