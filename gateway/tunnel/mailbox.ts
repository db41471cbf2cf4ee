import type { AttemptRequest, LetterResult } from './attempt.ts';

/** A letter that nobody answered is asked about then: an object that is well answers within half of it, if only that it takes longer. */
const ASK_AFTER_MS = 1_000;

/** Letters that nobody has taken: with more, the object is in trouble, and a call of the runtime's says of what kind. */
const LETTERS_MAX = 4_096;

/** A small request on its way to an object. The Worker and the object hold the same one. */
export class Letter {
  readonly open: AttemptRequest;
  readonly body: Uint8Array;
  /** Rejects where the object failed or is gone, so that its successor can be asked, and where it was withdrawn. */
  readonly answered: Promise<LetterResult>;
  #state: 'posted' | 'taken' | 'over' = 'posted';
  readonly #resolve: (result: LetterResult) => void;
  readonly #reject: (error: Error) => void;

  constructor(open: AttemptRequest, body: Uint8Array) {
    this.open = open;
    this.body = body;
    const { promise, resolve, reject } = Promise.withResolvers<LetterResult>();
    this.answered = promise;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /** The object has it. False: nobody wants it any more. */
  take(): boolean {
    if (this.#state !== 'posted') return false;
    this.#state = 'taken';
    return true;
  }

  get taken(): boolean {
    return this.#state === 'taken';
  }

  answer(result: LetterResult): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#resolve(result);
  }

  /** The object failed, or is gone. */
  lose(cause?: unknown): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#reject(new Error('the object that had it is gone', { cause }));
  }

  /** The client left; said by whoever posted it, who goes on at once. False: the object never saw it, and never will. */
  withdraw(): boolean {
    const seen = this.#state !== 'posted';
    this.#state = 'over';
    this.#reject(new Error('the client left'));
    return seen;
  }
}

/** By session: those of objects that live in this isolate and have a socket. */
const boxes = new Map<string, Mailbox>();

export function mailboxOf(session: string): Mailbox | undefined {
  return boxes.get(session);
}

/**
 * How a Worker hands a small request to an object of its own isolate, where all are that stay: in memory, without a call of the
 * runtime's, which costs more than all that is done with such a request. What comes in one turn is taken in one, and its frames share a
 * message.
 *
 * Each side keeps to its own context: nothing of the runtime's (sockets, timers, stubs) is touched from the other. A promise goes on in the
 * context that waits for it, whoever resolves it (compatibility flag `handle_cross_request_promise_resolution`, on since 2024-10-14); but only
 * one that `Promise.withResolvers` made: of `new Promise`, V8's optimized code forgets the context, and all that waits then goes on in the
 * wrong one. test/e2e/standalone/mailbox.test.ts has V8 optimize at once.
 */
export class Mailbox {
  readonly #session: string;
  #letters: Letter[] = [];
  #open = true;
  #wake = (): void => {};

  constructor(session: string) {
    this.#session = session;
  }

  /** The object's side: takes what comes, until the box is closed. */
  async serve(take: (letter: Letter) => void): Promise<void> {
    boxes.set(this.#session, this);
    while (this.#open) {
      const letters = this.#letters;
      this.#letters = [];
      for (const letter of letters) {
        try {
          if (letter.take()) take(letter);
        } catch (error) {
          letter.lose(error);
        }
      }
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      if (this.#letters.length > 0) resolve();
      await promise;
    }
  }

  /** What nobody took goes the other way. */
  close(): void {
    this.#open = false;
    if (boxes.get(this.#session) === this) boxes.delete(this.#session);
    for (const letter of this.#letters) letter.answer({ kind: 'fetch' });
    this.#letters = [];
    this.#wake();
  }

  /**
   * The Worker's side. `holds` asks the object by a call whether it works at the letter still.
   * @throws Error where the object is gone: its successor can be asked
   */
  async post(letter: Letter, holds: () => Promise<boolean>): Promise<LetterResult> {
    if (this.#letters.length >= LETTERS_MAX) return { kind: 'fetch' };
    this.#letters.push(letter);
    this.#wake();
    // Without one, the runtime would take a request that waits for nothing of its own for one that hangs.
    let timer = setTimeout(ask, ASK_AFTER_MS);
    async function ask(): Promise<void> {
      if (!letter.taken) return letter.answer({ kind: 'fetch' });
      const held = await holds().catch(() => false);
      if (!held) letter.lose();
      else timer = setTimeout(ask, ASK_AFTER_MS);
    }
    try {
      return await letter.answered;
    } finally {
      clearTimeout(timer);
    }
  }
}
