/**
 * Calls that must take effect once, although they are repeated if their answer was lost. A repetition gets the first
 * answer.
 */

/** How long answers are kept: longer than a follower repeats a call. */
const RETENTION_MS = 60_000;
/**
 * Above this number the oldest answer is forgotten. If its call is repeated after that, the request counts twice, which
 * makes a limit stricter and never laxer.
 */
const ENTRIES_MAX = 10_000;

export class IdempotentCalls {
  readonly #now: () => number;
  /** Answers by call, oldest first. */
  readonly #answers = new Map<string, { at: number; answer: Promise<unknown> }>();

  /** @param now returns milliseconds of a monotonic clock */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Runs the work unless it ran already. A call that was rejected runs again. */
  do(name: string, work: () => Promise<unknown>): Promise<unknown> {
    const now = this.#now();
    for (const [old, { at }] of this.#answers) {
      if (now - at < RETENTION_MS && this.#answers.size < ENTRIES_MAX) break;
      this.#answers.delete(old);
    }
    const known = this.#answers.get(name);
    if (known !== undefined) return known.answer;
    const answer = work();
    this.#answers.set(name, { at: now, answer });
    answer.catch(() => this.#answers.delete(name));
    return answer;
  }
}
