/** How long a node counts as busy after it refused one request. */
const BUSY_MS = 250;
/**
 * How long a node is avoided, while others are available, after its engine answered 429, 502 or 503, or accepted no
 * connection. Such a node has no open requests, so without this pause it would be chosen first for every request.
 */
export const REFUSED_MS = 1_000;
const BUSY_MAX = 4_096;

/**
 * Nodes that refused a request a moment ago. Skipping them saves the next requests a round trip, and saves retries,
 * which are limited.
 */
export class BusyNodes {
  readonly #ms: number;
  /** When the mark of each session ends, oldest mark first. */
  readonly #until = new Map<string, number>();

  constructor(ms = BUSY_MS) {
    this.#ms = ms;
  }

  mark(session: string, now: number): void {
    this.#until.delete(session);
    this.#until.set(session, now + this.#ms);
    const oldest = this.#until.keys().next().value;
    if (this.#until.size > BUSY_MAX && oldest !== undefined) this.#until.delete(oldest);
  }

  /** Call this when a request at the node has ended, because the node may be free again. */
  clear(session: string): void {
    this.#until.delete(session);
  }

  /** True if no node is busy. Cheap enough to run for every request. */
  isEmpty(now: number): boolean {
    for (const [session, until] of this.#until) {
      if (this.#isBusy(until, now)) return false;
      this.#until.delete(session);
    }
    return true;
  }

  has(session: string, now: number): boolean {
    return this.#isBusy(this.#until.get(session) ?? 0, now);
  }

  /** A mark that ends later than `#ms` from now was made before the clock was set back, so it does not count. */
  #isBusy(until: number, now: number): boolean {
    return until > now && until - now <= this.#ms;
  }
}
