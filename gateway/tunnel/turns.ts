import { Rounds } from '../../shared/upstream/rounds.ts';
import type { Clock } from '../object-context.ts';
import { steadyNow } from '../steady-clock.ts';

/** Deadlines are looked at this often while attempts are open; nothing ticks on an idle tunnel. */
const TURN_MS = 250;

interface TurnsOptions {
  /** Deadlines that are over now are over. `now` in all of these: of `steadyNow`. */
  judge(now: number): void;
  /** What waits for no deadline. */
  store(now: number): void;
  /** There is nothing to take turns for. */
  idle(): boolean;
  /** The last turn, until something is open again. */
  rested(): void;
}

/** The regular turns of one tunnel, while something is open there or to be settled. */
export class Turns {
  readonly #options: TurnsOptions;
  readonly #rounds = new Rounds(TURN_MS);
  readonly #clock: Clock;
  #timer: (() => void) | undefined;

  constructor(clock: Clock, options: TurnsOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  begin(): void {
    this.#timer ??= this.#clock.every(TURN_MS, () => this.#turn());
  }

  #turn(): void {
    const now = steadyNow();
    const { judge, store, idle, rested } = this.#options;
    if (this.#rounds.judges(now)) judge(now);
    store(now);
    if (!idle()) return;
    this.#timer?.();
    this.#timer = undefined;
    this.#rounds.rest();
    rested();
  }
}
