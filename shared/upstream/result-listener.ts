import type { AttemptFailure, AttemptHead, AttemptResult, WholeResult } from './attempt.ts';
import type { ResponseBody } from './response-body.ts';

/** An answer that has this much and no end is read as a stream at once. */
const LARGE_BYTES = 64 * 1024;

/** What is told of an answer whose head is there. */
export interface Known {
  kind: 'head';
  status: number;
  head: AttemptHead;
}

/** Who waits for what comes of an attempt: told once, and what comes after that is the rest of the answer, or why there is none. */
export class ResultListener {
  #tell: ((result: AttemptResult) => void) | undefined;
  #inform: ((result: WholeResult) => void) | undefined;
  #large: (() => void) | undefined;
  #begun: ((known: Known) => boolean) | undefined;
  #told = false;
  /** Came as a call, where a disconnect is not seen: it is cancelled then, unless a caller attends to it. */
  #attendBy: number | undefined;

  get told(): boolean {
    return this.#told;
  }

  /** `tell` gets the result; the caller's disconnect is seen. */
  attend(tell: (result: AttemptResult) => void): void {
    this.#attendBy = undefined;
    this.#tell = tell;
  }

  /**
   * `tell` gets a whole answer or a failure; `large` is called as soon as the answer turns out to be no small one. `begun` is called with an
   * answer whose first data is there, until it says that it has it.
   */
  inform(tell: (result: WholeResult) => void, large: () => void, begun?: (known: Known) => boolean): void {
    this.#inform = tell;
    this.#large = large;
    this.#begun = begun;
  }

  /** The result is held for a caller that attends by then. */
  hold(attendBy: number): void {
    this.#inform = undefined;
    this.#large = undefined;
    this.#begun = undefined;
    this.#attendBy = attendBy;
  }

  /** No reader attended. */
  isGone(now: number): boolean {
    return this.#attendBy !== undefined && now >= this.#attendBy;
  }

  /** The head is there, and `buffered` bytes of the answer. */
  answered(known: () => Known, answer: ResponseBody, buffered: number): void {
    if (this.#told) return;
    if (this.#tell !== undefined) {
      this.#told = true;
      this.#tell({ ...known(), whole: answer.takeWhole() });
      return;
    }
    if (this.#inform === undefined) return;
    const whole = answer.takeWhole();
    if (whole === undefined) {
      if (buffered > 0 && this.#begun?.(known())) this.#told = true;
      else if (buffered >= LARGE_BYTES) this.#large?.();
      return;
    }
    this.#told = true;
    this.#inform({ ...known(), whole });
  }

  failed(code: AttemptFailure, message: string): void {
    if (this.#told) return;
    this.#told = true;
    (this.#tell ?? this.#inform)?.({ kind: 'failure', code, message });
  }
}
