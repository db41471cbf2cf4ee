/** Finds the node that goes on with a stream whose own node is gone, and asks it to. */
import { concat } from '../openai/bytes.ts';
import {
  continuingBody,
  detokenizeBody,
  isPromptAndText,
  readText,
  readTokens,
  TOKENS_ANSWER_MAX_BYTES,
  tokenQuestions,
} from '../openai/continuation/bodies.ts';
import type { Plan } from '../openai/continuation/plan.ts';
import { type Endpoint, endpointById } from '../openai/endpoints.ts';
import { type Ending, endingOf, mayTryAnother } from '../routing/attempts.ts';
import { type Answer, type Begun, isEventStream } from './answer.ts';
import { type Asking, type Attempt, type Choice, type Delivery, handOver } from './hand-over.ts';
import { type Errand, lookInto } from './intake.ts';
import { PathError } from './path-error.ts';

/** Nodes whose engine cannot, or reads the text in another way: each costs some requests for tokens. */
const REJECTED_MAX = 4;

/** A tokenizer that takes longer is that of an engine in trouble. */
const TOKENS_MS = 5_000;

/** What finding a successor needs of its side. */
export interface Means<C extends Choice, A extends Answer> {
  /** How any request is handed over here. */
  asking(errand: Errand): Asking<C, A>;
  /** Sessions that serve the model in another revision or quantisation than the first node did. */
  unlike(): Iterable<string>;
  /** For requests that nobody is charged for: a name for their streams, a receipt of nobody's. */
  unpaid(): { name: string; receipt: string };
  /** Resolves after a moment in which nodes may have come; false where, after so many of them, it is no use to wait any longer. */
  pause(before: number, why: 'nobody' | 'busy'): Promise<boolean>;
}

/** A text that breaks off. */
export interface Broken {
  errand: Errand;
  /** As the client sent it. */
  body: Uint8Array;
  plan: Plan;
  text: string;
  /** Events that brought it: at least so many tokens. */
  textEvents: number;
  /** Who has it tried before. */
  tried: Set<string>;
  /** Attempts made for this request, so that the next one has a name of its own. */
  attempts: number;
}

export interface Successor<C extends Choice, A extends Answer> {
  delivery: Delivery<C, A>;
  /** Tokens of the text so far, as this engine counts them. */
  produced: number;
  attempts: number;
}

/** The node was asked and cannot go on; nothing is wrong with it. */
class Unfit extends PathError {
  constructor(why: string) {
    super('cancelled', why); // no other node's fault, no reason to suspect this one
  }
}

/** @returns the next node's answer, or why there is none. @throws PathError `cancelled` when the client left */
export async function findSuccessor<C extends Choice, A extends Answer>(
  broken: Broken,
  means: Means<C, A>,
): Promise<Successor<C, A> | { why: string }> {
  const search = new Search(broken, means);
  let why = 'no other node serves the model in the same revision and quantisation';
  for (let rejected = 0; rejected < REJECTED_MAX; rejected++) {
    search.unfit = undefined;
    try {
      const delivery = await handOver(search.asking());
      return { delivery, produced: search.produced, attempts: broken.attempts };
    } catch (error) {
      if (error instanceof PathError) throw error; // the client left
      if (search.unfit === undefined) return { why: search.failed ?? why };
      why = search.unfit;
    }
  }
  return { why };
}

class Search<C extends Choice, A extends Answer> {
  readonly #broken: Broken;
  readonly #means: Means<C, A>;
  /** Who made the attempt that runs, and is told of its end. */
  #asked: Asking<C, A> | undefined;
  /** Had no place for it a moment ago. */
  readonly #busy = new Set<string>();
  #pauses = 0;
  produced = 0;
  unfit: string | undefined;
  #rejected = false;
  #failure: PathError | undefined;

  constructor(broken: Broken, means: Means<C, A>) {
    this.#broken = broken;
    this.#means = means;
  }

  /** Why the last node that could have gone on did not. */
  get failed(): string | undefined {
    if (this.#failure === undefined) return undefined;
    return this.#failure.code === 'overloaded' ? 'the other nodes have no place for it' : 'the other nodes failed too';
  }

  asking(): Asking<C, A> {
    const { errand, tried } = this.#broken;
    const usual = this.#means.asking(errand);
    return {
      ...usual,
      choose: () => this.#choose(usual),
      attempt: (choice, attempt) => this.#attempt(choice, attempt),
      onFailure: (choice, code) => {
        if (code !== 'cancelled') usual.onFailure(choice, code);
        if (code !== 'overloaded') return;
        tried.delete(choice.node.session);
        this.#busy.add(choice.node.session);
      },
      onEnd: (choice, ending) => {
        this.#asked?.onEnd(choice, ending);
        this.#asked = undefined;
      },
      repeatable: () => true,
      refusal: (failure) => {
        this.#failure = failure;
        return usual.refusal(failure);
      },
    };
  }

  async #choose(usual: Asking<C, A>): Promise<C | undefined> {
    const { tried } = this.#broken;
    for (;;) {
      const choice = await usual.choose(new Set([...tried, ...this.#busy, ...this.#means.unlike()]));
      if (choice !== undefined) {
        tried.add(choice.node.session);
        return choice;
      }
      if (usual.left()) return undefined;
      if (this.#busy.size === 0 && this.#rejected) return undefined; // who was found unfit would be so again
      if (!(await this.#means.pause(this.#pauses++, this.#busy.size > 0 ? 'busy' : 'nobody'))) return undefined;
      this.#busy.clear();
    }
  }

  async #attempt(choice: C, { acceptMs }: Attempt): Promise<Begun<A>> {
    const { errand, body, plan, text } = this.#broken;
    const attempt = { number: ++this.#broken.attempts, acceptMs };
    try {
      if (text === '') return await this.#begin(withBody(errand, body), choice, attempt);
      this.produced = Math.max(this.#broken.textEvents, await this.#countTokens(choice, acceptMs));
      return await this.#begin(withBody(errand, continuingBody(plan, text, this.produced)), choice, attempt);
    } catch (error) {
      if (error instanceof Unfit) {
        this.unfit = error.message;
        this.#rejected = true;
      }
      throw error;
    }
  }

  async #begin(errand: Errand, choice: C, attempt: Attempt): Promise<Begun<A>> {
    this.#asked = this.#means.asking(errand);
    if (this.#asked.left()) throw new PathError('cancelled', 'the client left'); // it cannot cancel what begins now
    const begun = await this.#asked.attempt(choice, attempt);
    const { status, head } = begun.answer;
    if (status === 200 && isEventStream(head)) return begun;
    await begun.answer.cancel();
    throw new Unfit(`the next engine answered with status ${status}`);
  }

  /** Tokens of the text. @throws Unfit where the engine would not go on from where the text ends */
  async #countTokens(choice: C, acceptMs: number): Promise<number> {
    const { plan, text } = this.#broken;
    const { text: alone, rendered } = tokenQuestions(plan, text);
    if (rendered === undefined) return (await this.#tokens(choice, alone, acceptMs))?.length ?? 0;
    // One after the other: a node that has one place left would refuse the second at once.
    const count = await this.#tokens(choice, alone, acceptMs);
    const prompt = count && (await this.#tokens(choice, rendered.prompt, acceptMs));
    const partial = prompt && (await this.#tokens(choice, rendered.partial, acceptMs));
    if (count === undefined || prompt === undefined || partial === undefined) {
      throw new Unfit('the next engine does not tell how it reads the text so far');
    }
    if (isPromptAndText(partial, prompt, count)) return count.length;
    // Tokens may merge where prompt and text meet, and some tokenizers put a space before every text.
    const before = await this.#textOf(choice, prompt, acceptMs);
    if (before !== undefined && `${before}${text}` === (await this.#textOf(choice, partial, acceptMs))) {
      return count.length;
    }
    throw new Unfit("the model's template does not render the text so far as it was said");
  }

  async #tokens(choice: C, body: Uint8Array, acceptMs: number): Promise<number[] | undefined> {
    const answer = await this.#ask(TOKENIZE, choice, body, acceptMs);
    return answer && readTokens(answer);
  }

  async #textOf(choice: C, tokens: readonly number[], acceptMs: number): Promise<string | undefined> {
    const answer = await this.#ask(DETOKENIZE, choice, detokenizeBody(this.#broken.plan, tokens), acceptMs);
    return answer && readText(answer);
  }

  /** The answer, undefined where the engine has none. @throws PathError where its node is gone */
  async #ask(id: number, choice: C, body: Uint8Array, acceptMs: number): Promise<Uint8Array | undefined> {
    const endpoint = endpointById(id);
    if (endpoint === undefined) return undefined;
    const asking = this.#means.asking(this.#question(endpoint, body));
    let ending: Ending = 'failed';
    try {
      const begun = await asking.attempt(choice, { number: 1, acceptMs });
      ending = endingOf(begun.answer.status);
      if (begun.answer.status === 200) return await allOf(begun);
      await begun.answer.cancel();
    } catch (error) {
      if (error instanceof PathError) ending = endingOf(error.code);
      // A slow tokenizer says nothing about the node's path.
      if (!(error instanceof PathError) || mayTryAnother(error.code) || asking.left()) throw error;
    } finally {
      asking.onEnd(choice, ending);
    }
    return undefined;
  }

  #question(endpoint: Endpoint, body: Uint8Array): Errand {
    const { errand } = this.#broken;
    const timeouts = { first_byte_ms: TOKENS_MS, stall_ms: TOKENS_MS };
    const question = { ...errand, ...this.#means.unpaid(), endpoint, timeouts, headers: JSON_HEADERS };
    return withBody(question, body);
  }
}

const TOKENIZE = 9;
const DETOKENIZE = 10;
const JSON_HEADERS: Errand['headers'] = [['content-type', 'application/json']];

function withBody(errand: Errand, bytes: Uint8Array): Errand {
  const known = lookInto(bytes, 'application/json', errand.endpoint);
  return { ...errand, intake: { ...known, body: { kind: 'kept', bytes }, release: () => {} } };
}

/** Undefined where there is more than any tokenizer says. */
async function allOf({ answer, chunks }: Begun<Answer>): Promise<Uint8Array | undefined> {
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
