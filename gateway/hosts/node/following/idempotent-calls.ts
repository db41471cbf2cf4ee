/** Questions that must act once, though they may be asked again because their answer was lost: the second one gets the first one's answer. */

/** Answers are kept this long: longer than a follower asks again. */
const KEPT_MS = 60_000;
/** Beyond it the oldest is forgotten: its repetition would count twice, which allows less and never more. */
const KEPT_MAX = 10_000;

export class IdempotentCalls {
  readonly #now: () => number;
  /** Oldest first. */
  readonly #answers = new Map<string, { at: number; answer: Promise<unknown> }>();

  /** `now`: monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** What rejected is done again. */
  do(name: string, work: () => Promise<unknown>): Promise<unknown> {
    const now = this.#now();
    for (const [old, { at }] of this.#answers) {
      if (now - at < KEPT_MS && this.#answers.size < KEPT_MAX) break;
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
