import type { After } from '../collections/timer.ts';

interface QuestionsOptions<A> {
  /** Open at once; beyond that nothing is asked. */
  max: number;
  /** So long an answer is waited for. */
  answerMs: number;
  /** What is said when none came in that time. */
  late: A;
  /** What is said where it was not asked, or the socket is gone. */
  unknown: A;
  after: After;
}

/** Questions put over one socket, by number. Each has one answer: the other side's, or what its absence means. */
export class PendingReplies<A> {
  readonly #options: QuestionsOptions<A>;
  readonly #open = new Map<number, (answer: A) => void>();
  #last = 0;

  constructor(options: QuestionsOptions<A>) {
    this.#options = options;
  }

  /** `put` sends the question. */
  ask(put: (number: number) => void): Promise<A> {
    const { max, answerMs, late, unknown, after } = this.#options;
    if (this.#open.size >= max) return Promise.resolve(unknown);
    const number = ++this.#last;
    return new Promise((resolve) => {
      const stop = after(answerMs, () => this.answered(number, late));
      this.#open.set(number, (answer) => {
        stop();
        resolve(answer);
      });
      put(number);
    });
  }

  /** Says nothing where no caller waits for it any more. */
  answered(number: number, answer: A): void {
    const tell = this.#open.get(number);
    this.#open.delete(number);
    tell?.(answer);
  }

  /** The socket is gone, and what was asked over it. */
  abandon(): void {
    for (const number of [...this.#open.keys()]) this.answered(number, this.#options.unknown);
  }
}
