/**
 * Decides whether a periodic tick may enforce deadlines. After a pause (a starved or suspended machine) a process runs
 * its timers before it reads its sockets, so the awaited data may already be in its buffers. So one late tick enforces
 * no deadline. If the next tick is late, too, it does enforce them, because a process may always be late. (Local health
 * of Lifeguard, arXiv:1707.00788.)
 */
export class DeadlineTicker {
  readonly #lateMs: number;
  #lastAt: number | undefined;
  #excused = false;

  /** `everyMs`: interval between ticks. */
  constructor(everyMs: number) {
    this.#lateMs = 2 * everyMs;
  }

  /** Call for each tick. Returns false if deadlines must wait for the next tick. */
  judges(now: number): boolean {
    const late = this.#lastAt !== undefined && now - this.#lastAt > this.#lateMs;
    this.#lastAt = now;
    this.#excused = late && !this.#excused;
    return !this.#excused;
  }

  /** Call when the ticks pause. The first tick after the pause then does not count as late. */
  rest(): void {
    this.#lastAt = undefined;
    this.#excused = false;
  }
}
