/**
 * A collection of items by session. It gives them as an array, supports random choice, and updates in constant time.
 * The order of the array has no meaning.
 */
export class SessionBag<T extends { readonly session: string }> {
  readonly list: T[];
  readonly #at: Map<string, number>;

  constructor(list: T[] = [], at = new Map<string, number>()) {
    this.list = list;
    this.#at = at;
  }

  get(session: string): T | undefined {
    const at = this.#at.get(session);
    return at === undefined ? undefined : this.list[at];
  }

  put(item: T): void {
    const at = this.#at.get(item.session);
    if (at !== undefined) {
      this.list[at] = item;
      return;
    }
    this.#at.set(item.session, this.list.length);
    this.list.push(item);
  }

  delete(session: string): void {
    const at = this.#at.get(session);
    if (at === undefined) return;
    this.#at.delete(session);
    const last = this.list.pop();
    if (last === undefined || last.session === session) return;
    this.list[at] = last;
    this.#at.set(last.session, at);
  }

  /**
   * Returns a bag with the same items in a new array, so that a reader of the old array sees no change. The old bag
   * must not be used afterwards.
   */
  moved(): SessionBag<T> {
    return new SessionBag(this.list.slice(), this.#at);
  }
}
