/** A process that runs on time has a turn this often. Shorter than the 100 ms after which Linux gives a throttled group its next share. */
export const TURN_MS = 25;

/** A turn that took longer came late. Twice, so that the rounding of timers is not taken for a starved machine. */
const LATE_MS = 2 * TURN_MS;

/** However late its turns come, a process waits at most this many times longer than it would on time: a dead peer is found in the end. */
export const SLOWEST = 20;

/**
 * A clock for deadlines. It counts the turns that a process had: a turn that came late counts as one turn, not as the time that it took.
 * A process that was kept from running (a starved or paused machine, a long computation) has not read its sockets meanwhile, so the time
 * says nothing of its peers. Where turns come on time this clock shows the same milliseconds as the clock underneath. (The local health of
 * Lifeguard, arXiv:1707.00788, without its steps.)
 *
 * Never for dates, for rates or for what is measured: on a starved machine it is slow on purpose.
 */
export class PatientClock {
  #lastAt: number;
  #now: number;
  #lateAt = Number.NEGATIVE_INFINITY;

  /** `at`, here and below: milliseconds of a clock that is never set back. */
  constructor(at: number) {
    this.#lastAt = at;
    this.#now = at;
  }

  /** The process has a turn. */
  turn(at: number): void {
    const took = at - this.#lastAt;
    const late = took > LATE_MS;
    this.#now += late ? Math.max(TURN_MS, took / SLOWEST) : took;
    this.#lastAt = at;
    if (late) this.#lateAt = at;
  }

  /** A turn has just come late: what was waited for may lie unread in this process. */
  isLate(at: number): boolean {
    return at - this.#lateAt < TURN_MS;
  }

  /** No turns were told for a while, because nothing was waited for: all of that time counts. */
  resume(at: number): void {
    this.#now += at - this.#lastAt;
    this.#lastAt = at;
  }

  /** Between turns. */
  now(at: number): number {
    const took = at - this.#lastAt;
    return this.#now + Math.max(Math.min(took, TURN_MS), took / SLOWEST);
  }
}
