/** How long a node counts as busy after it refused one request. */
const BUSY_MS = 250;
const BUSY_MAX = 4_096;

/** A mark that lasts longer than BUSY_MS was made before the clock was set back. */
function isBusy(until: number, now: number): boolean {
  return until > now && until - now <= BUSY_MS;
}

/**
 * Nodes that refused a request a moment ago because they were full. Skipping them saves the next requests a round trip.
 */
export class BusyNodeMemory {
  /** Session → end of the mark, oldest mark first. */
  readonly #until = new Map<string, number>();

  mark(session: string, now: number): void {
    this.#until.delete(session);
    this.#until.set(session, now + BUSY_MS);
    const oldest = this.#until.keys().next().value;
    if (this.#until.size > BUSY_MAX && oldest !== undefined) this.#until.delete(oldest);
  }

  /** A place at the node became free. */
  clear(session: string): void {
    this.#until.delete(session);
  }

  /** True if no node is busy. Cheap, so it can run for every request. */
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
