import type { After } from '../collections/timer.ts';
import type { AdaptiveTimeout } from './adaptive-timeout.ts';
import { PatientClock, TURN_MS } from './patient-clock.ts';

/** Turns are counted until nobody has read the clock for so many of them: an idle process is not woken. */
const IDLE_TURNS = 40;

export interface PatienceHost {
  /** Milliseconds of a clock that is never set back. */
  now(): number;
  after: After;
  /**
   * Rings every `ms` until the result is called, and keeps no process alive. Undefined on a host that runs this code only while a request
   * is handled: there all time counts, as no turns can be counted.
   */
  every: After | undefined;
}

/** What waits for an answer is told so by its signal. */
export class NoAnswer extends Error {
  override readonly name = 'TimeoutError';
}

/** The one owner of how long a process waits: deadlines are set and judged by `now`, timers that end a wait are set by `after`. */
export class Patience {
  readonly #host: PatienceHost;
  readonly #clock: PatientClock;
  #stop: (() => void) | undefined;
  #idleTurns = 0;
  /** Timers that run. */
  #waits = 0;

  constructor(host: PatienceHost) {
    this.#host = host;
    this.#clock = new PatientClock(host.now());
  }

  /** Milliseconds in which this process had its turns. Equal to the host's while turns come on time. */
  now(): number {
    if (this.#host.every === undefined) return this.#host.now();
    this.#idleTurns = 0;
    this.#begin(this.#host.every);
    return this.#clock.now(this.#host.now());
  }

  #begin(every: After): void {
    if (this.#stop !== undefined) return;
    this.#clock.resume(this.#host.now());
    this.#stop = every(TURN_MS, () => {
      this.#clock.turn(this.#host.now());
      if (++this.#idleTurns < IDLE_TURNS || this.#waits > 0) return;
      this.#stop?.();
      this.#stop = undefined;
    });
  }

  /**
   * Rings once `ms` have passed on this clock. Timers come before sockets: a turn that is late itself rings nothing, once, since the answer
   * may lie in a buffer of this process.
   */
  readonly after: After = (ms, ring) => {
    const { after, every } = this.#host;
    if (every === undefined) return after(ms, ring);
    const due = this.now() + ms;
    let excused = false;
    let isOver = false;
    let cancel = () => {};
    this.#waits++;
    const arm = (left: number) => {
      cancel = after(left, () => {
        const at = this.#host.now();
        this.#clock.turn(at);
        const more = due - this.#clock.now(at);
        if (more > 0) return arm(more);
        if (this.#clock.isLate(at) && !excused) {
          excused = true;
          return arm(TURN_MS);
        }
        over();
        ring();
      });
    };
    const over = () => {
      if (isOver) return;
      isOver = true;
      cancel();
      this.#waits--;
    };
    arm(ms);
    return over;
  };

  /** Asks a peer, and learns how long it took. `late` is to end the question where no answer came in time. Rejects as `ask` does. */
  async call<T>(wait: AdaptiveTimeout, late: (why: NoAnswer) => void, ask: () => Promise<T>): Promise<T> {
    const { ms } = wait;
    const askedAt = this.now();
    const stop = this.after(ms, () => {
      wait.expired();
      late(new NoAnswer(`no answer within ${Math.round(ms)} ms`));
    });
    try {
      const answer = await ask();
      wait.answered(this.now() - askedAt);
      return answer;
    } finally {
      stop();
    }
  }
}
