import type { Answer } from '../../../shared/asking/answer.ts';
import type { AttemptFailure, AttemptResult } from '../../../shared/asking/attempt.ts';
import type { Exchange } from '../../../shared/asking/exchange.ts';
import { PathError } from '../../../shared/asking/path-error.ts';

/** One attempt at another agent (or at our own engine), as whoever asked for it reads it. */
export class Attempt {
  readonly #exchange: Exchange;
  readonly #result: Promise<AttemptResult>;
  #whole: Uint8Array | undefined;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  /** Why it ended before its end. */
  #failure: AttemptFailure | undefined;

  constructor(exchange: Exchange) {
    this.#exchange = exchange;
    this.#result = new Promise((resolve) => exchange.attend(resolve));
  }

  /** The engine's answer. @throws PathError when no head came */
  async open(): Promise<Answer> {
    const result = await this.#result;
    if (result.kind === 'failure') throw new PathError(result.code, result.message);
    this.#whole = result.whole;
    if (result.whole === undefined) this.#reader = this.#exchange.answer.open().getReader();
    const { status, head } = result;
    return { status, head, read: () => this.#read(), cancel: () => this.cancel() };
  }

  /** What is not read stays at the node, but for a window. */
  async #read(): Promise<Uint8Array | undefined> {
    const whole = this.#whole;
    this.#whole = undefined;
    if (whole !== undefined) return whole.length > 0 ? whole : undefined;
    if (this.#reader === undefined) return undefined;
    try {
      const { done, value } = await this.#reader.read();
      return done ? undefined : value;
    } catch {
      throw new PathError(this.#failure ?? 'lost', 'the answer broke off');
    }
  }

  /** Nobody wants it any more: the engine's work ends. Idempotent, and of no effect after the end. */
  cancel(): void {
    this.#exchange.cancel();
  }

  /** Called once by whoever runs the exchange. */
  over(failure: AttemptFailure | undefined): void {
    this.#failure = failure;
  }
}
