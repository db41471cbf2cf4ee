/** How long a node that refused one request is believed to be busy. */
const BUSY_MS = 250;
const BUSY_MAX = 4_096;

/** Nodes that said a moment ago that they have no place: the next requests spare themselves and them the way. */
export class BusyNodes {
  /** Until when, the longest known first. */
  readonly #until = new Map<string, number>();

  mark(session: string, now: number): void {
    this.#until.delete(session);
    this.#until.set(session, now + BUSY_MS);
    const oldest = this.#until.keys().next().value;
    if (this.#until.size > BUSY_MAX && oldest !== undefined) this.#until.delete(oldest);
  }

  /** A place of it became free. */
  clear(session: string): void {
    this.#until.delete(session);
  }

  /** Nobody is: costs nothing to ask. */
  isEmpty(now: number): boolean {
    for (const [session, until] of this.#until) {
      if (until > now) return false;
      this.#until.delete(session);
    }
    return true;
  }

  has(session: string, now: number): boolean {
    return (this.#until.get(session) ?? 0) > now;
  }
}
