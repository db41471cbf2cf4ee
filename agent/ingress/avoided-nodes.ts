/** A node that did not answer is left alone for so long, unless no other node serves the model. */
export const SILENT_MS = 10_000;

/** A node that drains, has lost its engine or does not serve our provider; what it says of itself catches up with the first two. */
export const REFUSING_MS = 10_000;

/** A node that takes no channel from here: it may stand behind another NAT, which does not change by the second. */
export const UNREACHABLE_MS = 30_000;

/** More than any wait above: the clock was set back, and the wait is over. */
const LONGEST_MS = Math.max(SILENT_MS, REFUSING_MS, UNREACHABLE_MS);

const AVOIDED_MAX = 10_000;

/** What this ingress found out by itself about the ways to nodes. Says nothing about the nodes: the registry does. */
export class AvoidedNodes {
  /** Session to the time until which it is avoided, oldest first. */
  readonly #until = new Map<string, number>();

  get size(): number {
    return this.#until.size;
  }

  add(session: string, until: number): void {
    this.#until.delete(session);
    this.#until.set(session, until);
    const oldest = this.#until.keys().next().value;
    if (this.#until.size > AVOIDED_MAX && oldest !== undefined) this.#until.delete(oldest);
  }

  /** A way to it was found. */
  delete(session: string): void {
    this.#until.delete(session);
  }

  has(session: string, now: number): boolean {
    const until = this.#until.get(session);
    if (until === undefined) return false;
    if (now < until && until - now <= LONGEST_MS) return true;
    this.#until.delete(session);
    return false;
  }
}
