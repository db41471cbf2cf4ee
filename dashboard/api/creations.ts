/**
 * Keys by which the gateway knows a creation again. If an answer is lost, the same creation is sent with the same key the next time: the
 * person gets what the first request made, and not a second one.
 */

/** Of one page. The oldest go first. */
const UNANSWERED_MAX = 32;

export class Creations {
  readonly #newKey: () => string;
  readonly #unanswered = new Map<string, string>();

  constructor(newKey: () => string) {
    this.#newKey = newKey;
  }

  /** `what`: address and body. */
  keyOf(what: string): string {
    const key = this.#unanswered.get(what) ?? this.#newKey();
    this.#unanswered.set(what, key);
    const [oldest] = this.#unanswered.keys();
    if (this.#unanswered.size > UNANSWERED_MAX && oldest !== undefined) this.#unanswered.delete(oldest);
    return key;
  }

  /** It was made or refused: the same words again are another creation. */
  answered(what: string): void {
    this.#unanswered.delete(what);
  }
}
