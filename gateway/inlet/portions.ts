/** Fewer at a time cost more than they gain: each portion is a message of its own to the agent. */
const LEAST = 16;
/** Of what waits, so many parts. */
const PARTS = 4;

/**
 * Begins what came together in portions, in its order, with a turn of the runtime between them. Sixty requests that are begun at once
 * also come at once to the object, the agent, the engine and back: whoever is not at work on all of them has nothing to do. In portions, the first
 * are at the engine while the last are begun.
 */
export class Portions {
  readonly #waiting: (() => void)[] = [];
  #scheduled = false;

  add(begin: () => void): void {
    this.#waiting.push(begin);
  }

  /** Nothing more comes in this turn: the first portion is begun now, unless an earlier one's rest is still to come. */
  begin(): void {
    if (!this.#scheduled) this.#next();
  }

  #next(): void {
    const portion = this.#waiting.splice(0, Math.max(LEAST, Math.ceil(this.#waiting.length / PARTS)));
    this.#scheduled = this.#waiting.length > 0;
    if (this.#scheduled) setTimeout(() => this.#next(), 0);
    for (const begin of portion) begin();
  }
}
