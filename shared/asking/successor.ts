/** Finds the node that goes on with a stream whose own node is gone, and asks it to. */
import { continuingBody } from '../openai/continuation/bodies.ts';
import type { Plan } from '../openai/continuation/plan.ts';
import { ApiError } from '../openai/errors.ts';
import { endingOf, isBusyStatus } from '../routing/attempts.ts';
import { type Answer, type Begun, isEventStream } from './answer.ts';
import { type Asking, type Attempt, type Choice, type Delivery, handOver } from './hand-over.ts';
import { type Errand, withBody } from './intake.ts';
import type { After } from './is-slower.ts';
import { PathError } from './path-error.ts';
import { Tokenizer, Unfit } from './tokenizer.ts';

/** Nodes whose engine cannot, or reads the text in another way: each costs some requests for tokens. */
const REJECTED_MAX = 4;

/** What finding a successor needs of its side. */
export interface Means<C extends Choice, A extends Answer> {
  /** How any request is handed over here. */
  asking(errand: Errand): Asking<C, A>;
  /** Sessions that serve the model in another revision or quantisation than the first node did. */
  unlike(): Iterable<string>;
  /** For requests that nobody is charged for: a name for their streams, a receipt of nobody's. */
  unpaid(): { name: string; receipt: string };
  /**
   * Calls `tryNodes`, and again whenever it is this stream's turn, as for any request that finds no free node. `rejected`: nodes that
   * it cannot use, though others could. Rejects with the last try's error, or with what became of the wait.
   */
  inTurn(tryNodes: () => Promise<Delivery<C, A>>, rejected: () => readonly string[]): Promise<Delivery<C, A>>;
  /** Some node had no place for it a moment ago. */
  busy(): boolean;
  /** The client of a stream that waits hears something so often. */
  pingMs: number;
  after: After;
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

/** @returns the next node's answer, or why there is none. @throws PathError `cancelled` when the client left */
export async function findSuccessor<C extends Choice, A extends Answer>(
  broken: Broken,
  means: Means<C, A>,
): Promise<Successor<C, A> | { why: string }> {
  const search = new Search(broken, means);
  try {
    const delivery = await means.inTurn(
      () => search.tryNodes(),
      () => search.rejected,
    );
    return { delivery, produced: search.produced, attempts: broken.attempts };
  } catch (error) {
    if (error instanceof ApiError) return { why: search.why(error) };
    throw error; // the client left
  }
}

class Search<C extends Choice, A extends Answer> {
  readonly #broken: Broken;
  readonly #means: Means<C, A>;
  readonly #tokenizer: Tokenizer<C, A>;
  /** Who made the attempt that runs, and is told of its end. */
  #asked: Asking<C, A> | undefined;
  /** Status of an engine that is there and cannot now. */
  #busyStatus: number | undefined;
  readonly #rejected = new Set<string>();
  /** What was wrong with the last of them. */
  #unfit: string | undefined;
  /** What the last try ended with. */
  #last: ApiError | undefined;
  #rounds = 0;
  produced = 0;

  constructor(broken: Broken, means: Means<C, A>) {
    this.#broken = broken;
    this.#means = means;
    const { errand, plan, text } = broken;
    const { asking, unpaid } = means;
    this.#tokenizer = new Tokenizer({ errand, plan, text, asking, unpaid });
  }

  get rejected(): readonly string[] {
    return [...this.#rejected];
  }

  /** One look at all nodes of now. */
  async tryNodes(): Promise<Delivery<C, A>> {
    // Who failed before the wait may be well again; without one it was asked a moment ago.
    if (this.#rounds++ > 0) this.#broken.tried.clear();
    for (;;) {
      const before = this.#rejected.size;
      try {
        return await handOver(this.#asking());
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
    if (cause instanceof PathError) {
      return cause.code === 'overloaded' ? 'the other nodes have no place for it' : 'the other nodes failed too';
    }
    return this.#unfit ?? 'no other node serves the model in the same revision and quantisation';
  }

  #asking(): Asking<C, A> {
    const { errand, tried } = this.#broken;
    const usual = this.#means.asking(errand);
    return {
      ...usual,
      choose: (round) => usual.choose(new Set([...round, ...tried, ...this.#rejected, ...this.#means.unlike()])),
      attempt: (choice, attempt) => this.#attempt(choice, attempt),
      onFailure: (choice, code) => {
        if (code !== 'cancelled') usual.onFailure(choice, code);
      },
      onEnd: (choice, ending) => {
        this.#asked?.onEnd(choice, this.#busyStatus === undefined ? ending : endingOf(this.#busyStatus));
        this.#asked = undefined;
        this.#busyStatus = undefined;
      },
      repeatable: () => true,
      refusal: (failure) => {
        // Who was found unfit would be so again: that is waited for only where others are there.
        const hopeless = failure === undefined && this.#unfit !== undefined && !this.#means.busy();
        this.#last = hopeless ? this.#hopeless() : usual.refusal(failure);
        return this.#last;
      },
    };
  }

  async #attempt(choice: C, { acceptMs, movable, moved }: Attempt): Promise<Begun<A>> {
    const { errand, body, plan, text, tried } = this.#broken;
    tried.add(choice.node.session);
    const attempt = { number: ++this.#broken.attempts, acceptMs, movable, moved };
    try {
      if (text === '') return await this.#begin(withBody(errand, body), choice, attempt);
      this.produced = Math.max(this.#broken.textEvents, await this.#tokenizer.count(choice, acceptMs));
      return await this.#begin(withBody(errand, continuingBody(plan, text, this.produced)), choice, attempt);
    } catch (error) {
      if (error instanceof Unfit) {
        this.#unfit = error.message;
        this.#rejected.add(choice.node.session);
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
    if (!isBusyStatus(status)) throw new Unfit(`the next engine answered with status ${status}`);
    this.#busyStatus = status;
    throw new PathError('overloaded', `the next engine answered with status ${status}`);
  }
}
