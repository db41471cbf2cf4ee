/**
 * Interval of a process's turns if it runs on time. Shorter than the 100 ms period after which Linux gives a throttled
 * cgroup its next CPU quota.
 */
export const TURN_MS = 25;

/**
 * A turn after more than this time is late. Twice the interval, so that the rounding of timers does not look like a
 * process without CPU time.
 */
const LATE_MS = 2 * TURN_MS;

/**
 * The longest extension of a wait: however late its turns are, a process waits at most this many times longer, so that
 * a dead peer is always detected.
 */
export const SLOWDOWN_MAX = 20;

/**
 * A clock for deadlines, which counts the turns that a process had. A late turn counts as one turn, not as the time
 * that it took. A process that could not run (a starved or paused machine, a long computation) did not read its sockets
 * either, so that time says nothing about its peers. While turns are on time, this clock shows the same milliseconds as
 * the underlying clock. (The local health of Lifeguard, arXiv:1707.00788, without its steps.)
 *
 * Never use it for dates, rates or measurements: on a starved machine it is slow on purpose.
 */
export class TurnClock {
  #lastAt: number;
  #now: number;
  #lateAt = Number.NEGATIVE_INFINITY;

  /** `at`, here and below: milliseconds of a monotonic clock. */
  constructor(at: number) {
    this.#lastAt = at;
    this.#now = at;
  }

  /** Call at each turn of the process. */
  turn(at: number): void {
    const took = at - this.#lastAt;
    const late = took > LATE_MS;
    this.#now += late ? Math.max(TURN_MS, took / SLOWDOWN_MAX) : took;
    this.#lastAt = at;
    if (late) this.#lateAt = at;
  }

  /** True if a turn has just come late. Expected data may then be in this process, unread. */
  isLate(at: number): boolean {
    return at - this.#lateAt < TURN_MS;
  }

  /**
   * Call when turns are counted again after a pause in which the process waited for nothing. All of the pause counts.
   */
  resume(at: number): void {
    this.#now += at - this.#lastAt;
    this.#lastAt = at;
  }

  /** The time on this clock at the time `at`, which may be between two turns. */
  now(at: number): number {
    const took = at - this.#lastAt;
    return this.#now + Math.max(Math.min(took, TURN_MS), took / SLOWDOWN_MAX);
  }
}
