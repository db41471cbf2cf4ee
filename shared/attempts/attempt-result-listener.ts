import type { AttemptFailure, ResultOf } from './attempt-request.ts';
import type { ResponseBody } from './response-body.ts';

/** An answer that has this many bytes and no end is treated as a stream. */
const LARGE_BYTES = 64 * 1024;

/**
 * The caller that waits for an attempt's result. It is told once. What follows is the rest of the answer, or the reason
 * why there is none.
 */
export class AttemptResultListener {
  #listener: ((result: ResultOf<'whole' | 'stream' | 'failure'>) => void) | undefined;
  #inform: ((result: ResultOf<'whole' | 'failure'>) => void) | undefined;
  #large: (() => void) | undefined;
  #onHead: ((answer: ResultOf<'stream'>) => boolean) | undefined;
  #reported = false;
  /**
   * The attempt came as a call, which cannot see the caller disconnect. It is cancelled at this time unless a caller
   * attends to it.
   */
  #attendBy: number | undefined;

  get told(): boolean {
    return this.#reported;
  }

  /** `listener` receives the result. The caller's disconnect is noticed. */
  attend(listener: (result: ResultOf<'whole' | 'stream' | 'failure'>) => void): void {
    this.#attendBy = undefined;
    this.#listener = listener;
  }

  /**
   * `listener` receives a complete answer or a failure. `large` is called as soon as the answer turns out not to be small.
   * `onHead` is called with an answer whose first data has arrived, until it returns true.
   */
  inform(
    listener: (result: ResultOf<'whole' | 'failure'>) => void,
    large: () => void,
    onHead?: (answer: ResultOf<'stream'>) => boolean,
  ): void {
    this.#inform = listener;
    this.#large = large;
    this.#onHead = onHead;
  }

  /** Holds the result for a caller that attends before this time. */
  hold(attendBy: number): void {
    this.#inform = undefined;
    this.#large = undefined;
    this.#onHead = undefined;
    this.#attendBy = attendBy;
  }

  /** No reader attended in time. */
  isGone(now: number): boolean {
    return this.#attendBy !== undefined && now >= this.#attendBy;
  }

  /** The head has arrived, and `buffered` bytes of the answer. */
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
