import { AdaptiveTimeout, type TimeoutBounds } from '../timing/adaptive-timeout.ts';
import type { StartTimer } from '../timing/start-timer.ts';

interface QuestionsOptions<A> {
  /** Maximum number of unanswered questions; above it no question is sent. */
  max: number;
  /** Bounds of the time to wait for a reply. */
  wait: TimeoutBounds;
  /** The result if no reply arrives in time. */
  late: A;
  /** The result if the question was not sent, or the socket was lost. */
  unknown: A;
  /** The clock and the timer of this process's WaitClock. */
  patience: { now(): number; after: StartTimer };
}

/** Questions sent over one socket, by number. Each gets one result: the peer's reply, or a value for its absence. */
export class PendingReplies<A> {
  readonly #options: QuestionsOptions<A>;
  readonly #open = new Map<number, { askedAt: number; tell(answer: A): void }>();
  readonly #wait: AdaptiveTimeout;
  #last = 0;

  constructor(options: QuestionsOptions<A>) {
    this.#options = options;
    this.#wait = new AdaptiveTimeout(options.wait);
  }

  /** Asks a question. `put` must send it with the given number. */
  ask(put: (number: number) => void): Promise<A> {
    const { max, late, unknown, patience: waitClock } = this.#options;
    if (this.#open.size >= max) return Promise.resolve(unknown);
    const number = ++this.#last;
    return new Promise((resolve) => {
      const askedAt = waitClock.now();
      const stop = waitClock.after(this.#wait.ms, () => {
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

  /** Call when a reply has arrived. It is ignored if no caller waits for it any more. */
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

  /** Call when the socket is lost. All open questions end with `unknown`. */
  abandon(): void {
    for (const number of [...this.#open.keys()]) this.#end(number, this.#options.unknown);
  }
}
