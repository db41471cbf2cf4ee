/** A node that did not answer is avoided for this long, unless it is the only one that serves the model. */
export const SILENT_MS = 10_000;

/**
 * How long to avoid a node that drains, has lost its engine, or does not serve our provider. If it drains or has lost
 * its engine, its record soon shows that.
 */
export const REFUSING_MS = 10_000;

/** How long to avoid a node that cannot be reached from here, for example behind another NAT. */
export const UNREACHABLE_MS = 30_000;

/** The longest remaining time that is possible. A longer one means that the clock was set back, and counts as over. */
const LONGEST_MS = Math.max(SILENT_MS, REFUSING_MS, UNREACHABLE_MS);

const AVOIDED_MAX = 10_000;

/**
 * Nodes that this ingress could not reach or use. The registry describes the nodes themselves, not the paths to them.
 */
export class AvoidedNodes {
  /** When each session stops being avoided; the oldest entry is first. */
  readonly #until = new Map<string, number>();

  add(session: string, until: number): void {
    this.#until.delete(session);
    this.#until.set(session, until);
    const oldest = this.#until.keys().next().value;
    if (this.#until.size > AVOIDED_MAX && oldest !== undefined) this.#until.delete(oldest);
  }

  /** Call when a path to the node was found. */
  delete(session: string): void {
    this.#until.delete(session);
  }

  /** The sessions that are avoided. */
  sessions(now: number): string[] {
    return [...this.#until.keys()].filter((session) => this.has(session, now));
  }

  has(session: string, now: number): boolean {
    const until = this.#until.get(session);
    if (until === undefined) return false;
    if (now < until && until - now <= LONGEST_MS) return true;
    this.#until.delete(session);
    return false;
  }
}
