/** What a gateway that is told to end looks at: whether somebody still waits for an answer. */

/** Of all connections together. */
export interface Traffic {
  /** How many chunks went by: quiet means that it stands still. */
  chunks: number;
  /** Connections that wait for an answer, of which nothing may be seen for minutes. */
  asking: number;
}

/** One connection's part of `Traffic.asking`. */
export class Asking {
  readonly #traffic: Traffic;
  #now = false;

  constructor(traffic: Traffic) {
    this.#traffic = traffic;
  }

  set(now: boolean): void {
    if (now === this.#now) return;
    this.#now = now;
    this.#traffic.asking += now ? 1 : -1;
  }
}
