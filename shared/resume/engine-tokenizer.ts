/**
 * Asks the engine's `/tokenize`, on the same path as an attempt, how it tokenizes the text that it would have to
 * continue.
 */

import { AttemptError } from '../attempts/attempt-error.ts';
import type { DispatchHost, DispatchTarget } from '../attempts/dispatch.ts';
import { type DispatchContext, withBody } from '../attempts/dispatch-context.ts';
import type { ResponseStream, StartedResponse } from '../attempts/started-response.ts';
import { concat } from '../collections/concat.ts';
import { TOKENS_ANSWER_MAX_BYTES } from '../openai/continuation/continuation-bodies.ts';
import type { ContinuationPlan } from '../openai/continuation/continuation-plan.ts';
import { countTokens } from '../openai/continuation/count-tokens.ts';
import { type Endpoint, endpointById } from '../openai/endpoints.ts';
import { mayRetry, type RequestOutcome, requestOutcome } from '../routing/retry-policy.ts';

/** Timeout of a tokenizer request. A healthy engine answers sooner. */
const TOKENS_MS = 5_000;

const JSON_HEADERS: DispatchContext['headers'] = [['content-type', 'application/json']];

/** The chosen node answered, but cannot continue the stream. It counts as healthy. */
export class CannotContinueError extends AttemptError {
  constructor(why: string) {
    super('cancelled', why); // A failure here says nothing about any node's health.
  }
}

interface TokenizerOptions<C extends DispatchTarget, A extends ResponseStream> {
  context: DispatchContext;
  plan: ContinuationPlan;
  text: string;
  attempts(context: DispatchContext): DispatchHost<C, A>;
  /** Returns a name and a receipt for a request that is not charged. */
  unpaid(): { name: string; receipt: string };
}

/** Counts tokens with the tokenizer of a chosen node. */
export class Tokenizer<C extends DispatchTarget, A extends ResponseStream> {
  readonly #options: TokenizerOptions<C, A>;

  constructor(options: TokenizerOptions<C, A>) {
    this.#options = options;
  }

  /**
   * The number of tokens of the text.
   * @throws CannotContinueError if the engine would not continue where the text ends, AttemptError if the node is gone
   */
  async count(choice: C, acceptMs: number): Promise<number> {
    const { plan, text } = this.#options;
    const count = await countTokens(plan, text, (id, body) => this.#ask(id, choice, body, acceptMs));
    if (typeof count === 'number') return count;
    throw new CannotContinueError(count.why);
  }

  /** The tokenizer's answer; undefined if the engine has none. @throws AttemptError if the node is gone */
  async #ask(id: number, choice: C, body: Uint8Array, acceptMs: number): Promise<Uint8Array | undefined> {
    const endpoint = endpointById(id);
    if (endpoint === undefined) return undefined;
    const host = this.#options.attempts(this.#question(endpoint, body));
    let ending: RequestOutcome = 'failed';
    try {
      const begun = await host.attempt(choice, { number: 1, acceptMs, movable: false, moved: false });
      ending = requestOutcome(begun.answer.status);
      if (begun.answer.status === 200) return await allOf(begun);
      await begun.answer.cancel();
    } catch (error) {
      if (error instanceof AttemptError) ending = requestOutcome(error.code);
      // A slow tokenizer proves nothing about the path to the node.
      if (!(error instanceof AttemptError) || mayRetry(error.code) || host.clientDisconnected()) throw error;
    } finally {
      host.onEnd(choice, ending);
    }
    return undefined;
  }

  #question(endpoint: Endpoint, body: Uint8Array): DispatchContext {
    const { context, unpaid } = this.#options;
    const timeouts = { first_byte_ms: TOKENS_MS, stall_ms: TOKENS_MS };
    return withBody({ ...context, ...unpaid(), endpoint, timeouts, headers: JSON_HEADERS }, body);
  }
}

/** Reads an answer. Undefined if it is longer than any tokenizer's answer. */
async function allOf({ answer, chunks }: StartedResponse<ResponseStream>): Promise<Uint8Array | undefined> {
  const pieces = [...chunks];
  let length = pieces.reduce((sum, { length: bytes }) => sum + bytes, 0);
  for (;;) {
    if (length > TOKENS_ANSWER_MAX_BYTES) {
      await answer.cancel();
      return undefined;
    }
    const piece = await answer.read();
    if (piece === undefined) return concat(pieces);
    pieces.push(piece);
    length += piece.length;
  }
}
