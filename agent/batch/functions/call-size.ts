import { BATCH_MAX, type FunctionOptions } from './function-options.ts';

/** The number of lines in a call grows until a call takes about this long. A killed node loses only one call's work. */
const CALL_TARGET_MS = 1_000;
/** Weight of the last call in the mean. */
const WEIGHT = 0.5;

/** Number of lines in one call of a function, and how long a line takes. */
export class CallSize {
  readonly #isFixed: boolean;
  #size: number;
  #lineMs: number | undefined;

  constructor(declared: FunctionOptions['batch_size'] = 'auto') {
    this.#isFixed = declared !== 'auto';
    this.#size = declared === 'auto' ? 1 : declared;
  }

  get size(): number {
    return this.#size;
  }

  /** Mean milliseconds of one line in recent calls; undefined before the first call has ended. */
  get lineMs(): number | undefined {
    return this.#lineMs;
  }

  took(lines: number, ms: number): void {
    const lineMs = ms / lines;
    this.#lineMs = this.#lineMs === undefined ? lineMs : WEIGHT * lineMs + (1 - WEIGHT) * this.#lineMs;
    if (this.#isFixed || lines < this.#size) return;
    if (ms < CALL_TARGET_MS / 2) this.#size = Math.min(BATCH_MAX, this.#size * 2);
    else if (ms > CALL_TARGET_MS * 2) this.#size = Math.max(1, Math.floor(this.#size / 2));
  }
}
