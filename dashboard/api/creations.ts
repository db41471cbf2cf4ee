/**
 * Idempotency keys of creations. If a response is lost, the next try of the same creation is sent with the same key.
 * The user then gets what the first request made, and not a second copy.
 */

/** Unanswered creations of one page. The oldest are dropped first. */
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

  /** The thing was made or refused: the same request is a new creation from now on. */
  answered(what: string): void {
    this.#unanswered.delete(what);
  }
}
