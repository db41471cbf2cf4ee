/**
 * The periodic ticks that check deadlines. After a pause (a starved or suspended machine) a process reaches its timers
 * before its sockets, and what it waited for may lie in its own buffers, so a late tick judges no stream. Two late
 * ticks in a row do judge: a process that is always late must judge at some point. (Local health of Lifeguard,
 * arXiv:1707.00788.)
 */
export class DeadlineTicker {
  readonly #lateMs: number;
  #lastAt: number | undefined;
  #excused = false;

  /** `everyMs`: interval between ticks. */
  constructor(everyMs: number) {
    this.#lateMs = 2 * everyMs;
  }

  /** A tick at `now`. Returns false if deadlines must wait for the next tick. */
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
