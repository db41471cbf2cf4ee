/** How long a node counts as busy after it refused one request. */
const BUSY_MS = 250;
/**
 * How long a node is avoided, while others are available, after its engine answered 429, 502 or 503, or accepted no
 * connection. Such a node has no open requests. Without this pause the policies would consider it free and choose it
 * first for every request.
 */
export const REFUSED_MS = 1_000;
const BUSY_MAX = 4_096;

/**
 * Nodes that have just refused a request. The next requests skip them, which saves a round trip and a retry, and the
 * number of retries is limited.
 */
export class BusyNodes {
  readonly #ms: number;
  /** The time at which each session's mark ends, oldest mark first. */
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

  /** The sessions of the nodes that are busy. */
  sessions(now: number): string[] {
    if (this.isEmpty(now)) return [];
    return [...this.#until.keys()].filter((session) => this.has(session, now));
  }

  has(session: string, now: number): boolean {
    return this.#isBusy(this.#until.get(session) ?? 0, now);
  }

  /**
   * True if the mark has not ended. A mark that ends later than `#ms` from now was made before the clock was set back,
   * so it does not count.
   */
  #isBusy(until: number, now: number): boolean {
    return until > now && until - now <= this.#ms;
  }
}
