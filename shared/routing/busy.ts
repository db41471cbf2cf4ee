/** How long a node that refused one request is believed to be busy. */
const BUSY_MS = 250;
const BUSY_MAX = 4_096;

/** A mark that lasts longer than BUSY_MS is from before the clock was set back. */
function isBusy(until: number, now: number): boolean {
  return until > now && until - now <= BUSY_MS;
}

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

  /** No node is busy: costs nothing to ask. */
  isEmpty(now: number): boolean {
    for (const [session, until] of this.#until) {
      if (isBusy(until, now)) return false;
      this.#until.delete(session);
    }
    return true;
  }

  has(session: string, now: number): boolean {
    return isBusy(this.#until.get(session) ?? 0, now);
  }
}
