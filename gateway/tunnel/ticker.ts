import { DeadlineTicker } from '../../shared/attempts/deadline-ticker.ts';
import type { Clock } from '../platform/object-context.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { waitClock } from '../platform/wait-clock.ts';

/** Interval at which deadlines are checked while attempts are open. On an idle tunnel nothing is checked. */
const TICK_MS = 250;

interface TickerOptions {
  /** Ends everything that has passed its deadline. `now`: time of `waitClock`. */
  judge(now: number): void;
  /** Does the work that has no deadline. `now`: time of `steadyNow`. */
  store(now: number): void;
  /** Returns true if no attempt is open and no usage must be stored. */
  idle(): boolean;
  /** Called after the last tick before the next attempt opens. */
  rested(): void;
}

/** The regular ticks of one tunnel while an attempt is open or usage must be stored. */
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
