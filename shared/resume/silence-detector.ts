import type { StartTimer } from '../timing/start-timer.ts';

/**
 * Detects that a stream is silent, with one timer per interval instead of one timer per token. The stream counts as
 * silent if a wait lasts for one to two intervals.
 */
export class SilenceDetector {
  readonly #intervalMs: number;
  readonly #after: StartTimer;
  #stop: (() => void) | undefined;
  /** The current wait; undefined if there is none. */
  #waiting: { notice(isSilent: boolean): void; hasOutlasted: boolean } | undefined;

  constructor(intervalMs: number, after: StartTimer) {
    this.#intervalMs = intervalMs;
    this.#after = after;
  }

  /**
   * Resolves to false when `work` settles. Resolves to true if `work` has not settled and the stream is silent. Only
   * one wait is allowed at a time.
   */
  outlasts(work: Promise<unknown>): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const waiting = { notice: resolve, hasOutlasted: false };
    this.#waiting = waiting;
    const done = () => {
      if (this.#waiting === waiting) this.#waiting = undefined;
      resolve(false);
    };
    work.then(done, done);
    this.#stop ??= this.#after(this.#intervalMs, () => this.#onTimer());
    return promise;
  }

  #onTimer(): void {
    this.#stop = undefined;
    const waiting = this.#waiting;
    if (waiting === undefined) return;
    if (waiting.hasOutlasted) {
      this.#waiting = undefined;
      return waiting.notice(true);
    }
    waiting.hasOutlasted = true;
    this.#stop = this.#after(this.#intervalMs, () => this.#onTimer());
  }

  /** Ends the detection, if there is no current wait. */
  end(): void {
    this.#stop?.();
    this.#stop = undefined;
    this.#waiting = undefined;
  }
}
