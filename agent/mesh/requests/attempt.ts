import type { AttemptFailure, AttemptHead, AttemptResult } from '../../../shared/asking/attempt.ts';
import type { Exchange } from '../../../shared/asking/exchange.ts';

/** An attempt that failed on its way, not in its engine. */
export class PathError extends Error {
  override readonly name = 'PathError';
  readonly code: AttemptFailure;
  constructor(code: AttemptFailure, message: string) {
    super(message);
    this.code = code;
  }
}

export interface AnswerHead extends AttemptHead {
  status: number;
}

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

  /** The engine's head. @throws PathError when none came. */
  async head(): Promise<AnswerHead> {
    const result = await this.#result;
    if (result.kind === 'failure') throw new PathError(result.code, result.message);
    this.#whole = result.whole;
    if (result.whole === undefined) this.#reader = this.#exchange.answer.open().getReader();
    return { status: result.status, ...result.head };
  }

  /**
   * The next bytes, or undefined at the complete end; not before the head. What is not read stays at the node, but for a window.
   * @throws PathError when the rest cannot be had
   */
  async read(): Promise<Uint8Array | undefined> {
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
