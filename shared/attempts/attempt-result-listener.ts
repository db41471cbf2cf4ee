import type { AttemptFailure, ResultOf } from './attempt-request.ts';
import type { ResponseBody } from './response-body.ts';

/** If this many bytes of an answer have arrived without its end, the answer is handled as a stream. */
const LARGE_BYTES = 64 * 1024;

/**
 * Delivers an attempt's result exactly once to the caller that waits for it. Afterwards the caller gets only the rest
 * of the answer, or the reason why the rest is missing.
 */
export class AttemptResultListener {
  #listener: ((result: ResultOf<'whole' | 'stream' | 'failure'>) => void) | undefined;
  #inform: ((result: ResultOf<'whole' | 'failure'>) => void) | undefined;
  #large: (() => void) | undefined;
  #onHead: ((answer: ResultOf<'stream'>) => boolean) | undefined;
  #reported = false;
  /**
   * Set if the result is held for a caller that must fetch it. The attempt is cancelled at this time unless a caller
   * attends to it.
   */
  #attachBy: number | undefined;

  get delivered(): boolean {
    return this.#reported;
  }

  /** `listener` receives the result. From now on a disconnect of the caller is noticed. */
  attachCaller(listener: (result: ResultOf<'whole' | 'stream' | 'failure'>) => void): void {
    this.#attachBy = undefined;
    this.#listener = listener;
  }

  /**
   * `listener` receives a complete answer or a failure. `large` is called when LARGE_BYTES of the answer have arrived
   * without its end. `onHead` is called with an answer that has first data, until it returns true: then it has taken
   * the answer.
   */
  notifyWhole(
    listener: (result: ResultOf<'whole' | 'failure'>) => void,
    large: () => void,
    onHead?: (answer: ResultOf<'stream'>) => boolean,
  ): void {
    this.#inform = listener;
    this.#large = large;
    this.#onHead = onHead;
  }

  /** Holds the result for a caller that attaches before this time. If none does, the attempt is to be cancelled. */
  hold(attachBy: number): void {
    this.#inform = undefined;
    this.#large = undefined;
    this.#onHead = undefined;
    this.#attachBy = attachBy;
  }

  get held(): boolean {
    return this.#attachBy !== undefined;
  }

  /** True if no caller attached in time. */
  attachExpired(now: number): boolean {
    return this.#attachBy !== undefined && now >= this.#attachBy;
  }

  /**
   * Call when the answer's head has arrived, and again when more data has arrived. `buffered`: bytes of the body that
   * wait here.
   */
  answered(answer: () => ResultOf<'stream'>, body: ResponseBody, buffered: number): void {
    if (this.#reported) return;
    if (this.#listener !== undefined) {
      this.#reported = true;
      const streamed = answer();
      const bytes = body.takeWhole();
      this.#listener(bytes === undefined ? streamed : wholeOf(streamed, bytes));
      return;
    }
    if (this.#inform === undefined) return;
    const bytes = body.takeWhole();
    if (bytes === undefined) {
      if (buffered > 0 && this.#onHead?.(answer())) this.#reported = true;
      else if (buffered >= LARGE_BYTES) this.#large?.();
      return;
    }
    this.#reported = true;
    this.#inform(wholeOf(answer(), bytes));
  }

  failed(code: AttemptFailure, message: string): void {
    if (this.#reported) return;
    this.#reported = true;
    (this.#listener ?? this.#inform)?.({ kind: 'failure', code, message });
  }
}

function wholeOf({ status, head }: ResultOf<'stream'>, bytes: Uint8Array): ResultOf<'whole'> {
  return { kind: 'whole', status, head, bytes };
}
