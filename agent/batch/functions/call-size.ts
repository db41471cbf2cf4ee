/** Calls grow until one takes about this long: what a killed node loses is one call. */
const AIM_MS = 1_000;
/** A lease has as many lines. */
const MOST = 100;

/** How many lines one call of `infer` gets. */
export class CallSize {
  #size = 1;

  get size(): number {
    return this.#size;
  }

  took(lines: number, ms: number): void {
    if (lines < this.#size) return;
    if (ms < AIM_MS / 2) this.#size = Math.min(MOST, this.#size * 2);
    else if (ms > AIM_MS * 2) this.#size = Math.max(1, Math.floor(this.#size / 2));
  }
}
