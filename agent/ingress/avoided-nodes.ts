/** A node that did not answer is avoided for this long, unless no other node serves the model. */
export const SILENT_MS = 10_000;

/**
 * A node that drains, has lost its engine or does not serve our provider. For the first two reasons its record changes
 * meanwhile.
 */
export const REFUSING_MS = 10_000;

/** A node that cannot be reached from here: it may be behind another NAT, which does not change within seconds. */
export const UNREACHABLE_MS = 30_000;

/** A longer wait than this means that the clock was set back, and the wait has ended. */
const LONGEST_MS = Math.max(SILENT_MS, REFUSING_MS, UNREACHABLE_MS);

const AVOIDED_MAX = 10_000;

/**
 * This ingress's own findings about the paths to nodes. They concern only the paths; the registry describes the nodes.
 */
export class AvoidedNodes {
  /** Time until which a session is avoided, oldest first. */
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

  /** A path to the node was found. */
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
