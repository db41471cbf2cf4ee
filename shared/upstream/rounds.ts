/**
 * The regular ticks at which deadlines are looked at. A process that stood still, on a starved or paused machine, comes to its
 * timer before it comes to its sockets: what was waited for may lie in its own buffers, so that such a tick judges no stream. Never
 * two of them in a row: a process that is always late has to judge some time. (The local health of Lifeguard, arXiv:1707.00788.)
 */
export class Rounds {
  readonly #lateMs: number;
  #lastAt: number | undefined;
  #excused = false;

  /** `everyMs`: from one tick to the next. */
  constructor(everyMs: number) {
    this.#lateMs = 2 * everyMs;
  }

  /** A tick, at this time. False: deadlines that are over now are looked at in the next one. */
  judges(now: number): boolean {
    const late = this.#lastAt !== undefined && now - this.#lastAt > this.#lateMs;
    this.#lastAt = now;
    this.#excused = late && !this.#excused;
    return !this.#excused;
  }

  /** The ticks pause. */
  rest(): void {
    this.#lastAt = undefined;
    this.#excused = false;
  }
}
