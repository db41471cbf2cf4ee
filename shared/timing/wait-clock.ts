import type { AdaptiveTimeout } from './adaptive-timeout.ts';
import type { StartTimer } from './start-timer.ts';
import { TURN_MS, TurnClock } from './turn-clock.ts';

/**
 * If the clock has not been read for this many turns, turns are no longer counted, so that an idle process is not
 * woken.
 */
const IDLE_TURNS = 40;

export interface WaitClockHost {
  /** Milliseconds of a monotonic clock. */
  now(): number;
  after: StartTimer;
  /**
   * Calls back every `ms` until the returned function is called, and keeps no process alive. Undefined on a host that
   * runs this code only while it handles a request. There, turns cannot be counted, so all time counts.
   */
  every: StartTimer | undefined;
}

/** The abort reason of an operation that got no answer within its time limit. */
export class NoAnswerError extends Error {
  override readonly name = 'TimeoutError';
}

/**
 * The clock with which a process limits its waits. Deadlines are set and checked with `now`, and timers that end a wait
 * are set with `after`. No other code in a process may limit its waits.
 */
export class WaitClock {
  readonly #host: WaitClockHost;
  readonly #clock: TurnClock;
  #stop: (() => void) | undefined;
  #idleTurns = 0;
  /** Number of running timers. */
  #waits = 0;

  constructor(host: WaitClockHost) {
    this.#host = host;
    this.#clock = new TurnClock(host.now());
  }

  /** Milliseconds in which this process had its turns. Equal to the host's clock while turns are on time. */
  now(): number {
    if (this.#host.every === undefined) return this.#host.now();
    this.#idleTurns = 0;
    this.#begin(this.#host.every);
    return this.#clock.now(this.#host.now());
  }

  #begin(every: StartTimer): void {
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
   * Calls `onTimer` when `ms` have passed on this clock. A runtime handles timers before sockets. So the first late
   * turn does not call `onTimer`, because the answer may already be in a buffer of this process.
   */
  readonly after: StartTimer = (ms, onTimer) => {
    const { after, every } = this.#host;
    if (every === undefined) return after(ms, onTimer);
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
        onTimer();
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

  /**
   * Calls `ask` with a signal that aborts if no answer comes in time, and adjusts `wait` to the time that the answer
   * took.
   * @throws NoAnswerError, or the error that `ask` throws
   */
  async call<T>(wait: AdaptiveTimeout, ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { ms } = wait;
    const late = new AbortController();
    const askedAt = this.now();
    const stop = this.after(ms, () => {
      wait.expired();
      late.abort(new NoAnswerError(`no answer within ${Math.round(ms)} ms`));
    });
    try {
      const answer = await ask(late.signal);
      wait.answered(this.now() - askedAt);
      return answer;
    } finally {
      stop();
    }
  }
}
