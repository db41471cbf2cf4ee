/**
 * Agents of processes to which the link broke. After a pause of this process all its links break, and are open again
 * soon. So the agents are reported only if the link stays closed, or if their process has ended.
 */

/** Time for a link to open again. */
const REOPEN_MS = 3_000;

interface Broken {
  sessions: Set<string>;
  timer: NodeJS.Timeout;
}

export class BrokenLinks {
  readonly #report: (sessions: readonly string[]) => void;
  /** By incarnation; at most the processes that run. */
  readonly #broken = new Map<string, Broken>();

  constructor(report: (sessions: readonly string[]) => void) {
    this.#report = report;
  }

  /** The link to a process with these agents broke. */
  add(incarnation: string, sessions: readonly string[]): void {
    if (sessions.length === 0) return;
    const known = this.#broken.get(incarnation);
    this.#broken.set(incarnation, {
      sessions: new Set([...(known?.sessions ?? []), ...sessions]),
      timer: known?.timer ?? setTimeout(() => this.end(incarnation), REOPEN_MS).unref(),
    });
  }

  /** Reports the process's agents now. */
  end(incarnation: string): void {
    const broken = this.#broken.get(incarnation);
    if (broken === undefined) return;
    clearTimeout(broken.timer);
    this.#broken.delete(incarnation);
    this.#report([...broken.sessions]);
  }

  stop(): void {
    for (const { timer } of this.#broken.values()) clearTimeout(timer);
    this.#broken.clear();
  }
}
