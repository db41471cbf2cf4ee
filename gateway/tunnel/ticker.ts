import { DeadlineTicker } from '../../shared/attempts/deadline-ticker.ts';
import type { Clock } from '../platform/object-context.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { waitClock } from '../platform/wait-clock.ts';

/** Interval at which deadlines are checked while attempts are open. Nothing ticks on an idle tunnel. */
const TICK_MS = 250;

interface TickerOptions {
  /** Ends everything that has passed its deadline. `now`: of `waitClock`. */
  judge(now: number): void;
  /** Does the work that has no deadline. `now`: of `steadyNow`. */
  store(now: number): void;
  /** True if no attempt is open and nothing is left to settle. */
  idle(): boolean;
  /** This was the last tick until the next attempt opens. */
  rested(): void;
}

/** The regular ticks of one tunnel while an attempt is open or something is left to settle. */
export class Ticker {
  readonly #options: TickerOptions;
  readonly #rounds = new DeadlineTicker(TICK_MS);
  readonly #clock: Clock;
  #timer: (() => void) | undefined;

  constructor(clock: Clock, options: TickerOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  begin(): void {
    this.#timer ??= this.#clock.every(TICK_MS, () => this.#tick());
  }

  #tick(): void {
    const now = steadyNow();
    const { judge, store, idle, rested } = this.#options;
    if (this.#rounds.judges(now)) judge(waitClock.now());
    store(now);
    if (!idle()) return;
    this.#timer?.();
    this.#timer = undefined;
    this.#rounds.rest();
    rested();
  }
}
