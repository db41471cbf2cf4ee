/**
 * Idempotency keys of creations. If a response is lost, the next try of the same creation is sent with the same key.
 * The user then gets what the first request made, and not a second copy.
 */

/** Maximum number of unanswered creations of one page. Above it the oldest is forgotten. */
const UNANSWERED_MAX = 32;

export class IdempotencyKeys {
  readonly #newKey: () => string;
  readonly #unanswered = new Map<string, string>();

  constructor(newKey: () => string) {
    this.#newKey = newKey;
  }

  /** Returns the idempotency key of a creation. `what`: the address and the body of its request. */
  keyOf(what: string): string {
    const key = this.#unanswered.get(what) ?? this.#newKey();
    this.#unanswered.set(what, key);
    const [oldest] = this.#unanswered.keys();
    if (this.#unanswered.size > UNANSWERED_MAX && oldest !== undefined) this.#unanswered.delete(oldest);
    return key;
  }

  /** Call when the thing was made or refused. From then on the same request is a new creation. */
  answered(what: string): void {
    this.#unanswered.delete(what);
  }
}
