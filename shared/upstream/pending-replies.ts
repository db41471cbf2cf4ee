import type { After } from '../collections/timer.ts';
import { AdaptiveTimeout, type TimeoutBounds } from '../patience/adaptive-timeout.ts';

interface QuestionsOptions<A> {
  /** Open at once; beyond that nothing is asked. */
  max: number;
  /** How long an answer is waited for. */
  wait: TimeoutBounds;
  /** What is said when none came in that time. */
  late: A;
  /** What is said where it was not asked, or the socket is gone. */
  unknown: A;
  /** Milliseconds, and a timer, by this process's patience. */
  patience: { now(): number; after: After };
}

/** Questions put over one socket, by number. Each has one answer: the other side's, or what its absence means. */
export class PendingReplies<A> {
  readonly #options: QuestionsOptions<A>;
  readonly #open = new Map<number, { askedAt: number; tell(answer: A): void }>();
  readonly #wait: AdaptiveTimeout;
  #last = 0;

  constructor(options: QuestionsOptions<A>) {
    this.#options = options;
    this.#wait = new AdaptiveTimeout(options.wait);
  }

  /** `put` sends the question. */
  ask(put: (number: number) => void): Promise<A> {
    const { max, late, unknown, patience } = this.#options;
    if (this.#open.size >= max) return Promise.resolve(unknown);
    const number = ++this.#last;
    return new Promise((resolve) => {
      const askedAt = patience.now();
      const stop = patience.after(this.#wait.ms, () => {
        this.#wait.expired();
        this.#end(number, late);
      });
      this.#open.set(number, {
        askedAt,
        tell: (answer) => {
          stop();
          resolve(answer);
        },
      });
      put(number);
    });
  }

  /** Says nothing where no caller waits for it any more. */
  answered(number: number, answer: A): void {
    const askedAt = this.#open.get(number)?.askedAt;
    if (askedAt !== undefined) this.#wait.answered(this.#options.patience.now() - askedAt);
    this.#end(number, answer);
  }

  #end(number: number, answer: A): void {
    const open = this.#open.get(number);
    this.#open.delete(number);
    open?.tell(answer);
  }

  /** The socket is gone, and what was asked over it. */
  abandon(): void {
    for (const number of [...this.#open.keys()]) this.#end(number, this.#options.unknown);
  }
}
