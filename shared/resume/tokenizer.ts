/** How an engine reads the text that it is to go on with: asked of its `/tokenize`, on the way to the attempt itself. */
import { concat } from '../collections/concat.ts';
import { TOKENS_ANSWER_MAX_BYTES } from '../openai/continuation/bodies.ts';
import type { Plan } from '../openai/continuation/plan.ts';
import { countTokens } from '../openai/continuation/tokens.ts';
import { type Endpoint, endpointById } from '../openai/endpoints.ts';
import { type Ending, endingOf, mayTryAnother } from '../routing/attempts.ts';
import { AttemptError } from '../upstream/attempt-error.ts';
import type { Choice, DispatchHost } from '../upstream/dispatch.ts';
import { type DispatchContext, withBody } from '../upstream/dispatch-context.ts';
import type { ResponseStream, StartedResponse } from '../upstream/response.ts';

/** One that takes longer is that of an engine in trouble. */
const TOKENS_MS = 5_000;

const JSON_HEADERS: DispatchContext['headers'] = [['content-type', 'application/json']];

/** The node was asked and cannot go on; nothing is wrong with it. */
export class Unfit extends AttemptError {
  constructor(why: string) {
    super('cancelled', why); // no other node's fault, no reason to suspect this one
  }
}

interface TokenizerOptions<C extends Choice, A extends ResponseStream> {
  context: DispatchContext;
  plan: Plan;
  text: string;
  dispatchHost(context: DispatchContext): DispatchHost<C, A>;
  /** For requests without a charge. */
  unpaid(): { name: string; receipt: string };
}

/** Of whichever node is chosen. */
export class Tokenizer<C extends Choice, A extends ResponseStream> {
  readonly #options: TokenizerOptions<C, A>;

  constructor(options: TokenizerOptions<C, A>) {
    this.#options = options;
  }

  /** Tokens of the text. @throws Unfit where the engine would not go on from where the text ends, AttemptError where its node is gone */
  async count(choice: C, acceptMs: number): Promise<number> {
    const { plan, text } = this.#options;
    const count = await countTokens(plan, text, (id, body) => this.#ask(id, choice, body, acceptMs));
    if (typeof count === 'number') return count;
    throw new Unfit(count.why);
  }

  /** The answer, undefined where the engine has none. @throws AttemptError where its node is gone */
  async #ask(id: number, choice: C, body: Uint8Array, acceptMs: number): Promise<Uint8Array | undefined> {
    const endpoint = endpointById(id);
    if (endpoint === undefined) return undefined;
    const host = this.#options.dispatchHost(this.#question(endpoint, body));
    let ending: Ending = 'failed';
    try {
      const begun = await host.attempt(choice, { number: 1, acceptMs, movable: false, moved: false });
      ending = endingOf(begun.answer.status);
      if (begun.answer.status === 200) return await allOf(begun);
      await begun.answer.cancel();
    } catch (error) {
      if (error instanceof AttemptError) ending = endingOf(error.code);
      // A slow tokenizer says nothing about the node's path.
      if (!(error instanceof AttemptError) || mayTryAnother(error.code) || host.left()) throw error;
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

/** Undefined where there is more than any tokenizer says. */
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
