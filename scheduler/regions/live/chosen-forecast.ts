import { chosenForecaster } from '../../forecast/choose-forecaster.ts';
import { DEFAULT_FIT, type FittedForecaster } from '../../forecast/types.ts';
import type { OnlineForecast } from './count-forecast.ts';

/** Slots between two backtests, which take some milliseconds each. */
const REFIT_SLOTS = 40;
/** Slots that are kept: six hours of 45 s. Older slots say little about the next one. */
const HISTORY_MAX = 480;

/**
 * Forecasts the next slot by the method that a backtest on the recent slots chooses, as the simulator's `best by
 * backtest` does. Until the first backtest there is no forecast (NaN), and the caller uses its level.
 */
export class ChosenForecast implements OnlineForecast {
  readonly #slotS: number;
  readonly #counts: number[] = [];
  #fitted: FittedForecaster | undefined;
  #sinceFit = 0;

  constructor(slotS: number) {
    this.#slotS = slotS;
  }

  observe(count: number): void {
    this.#counts.push(count);
    if (this.#counts.length > HISTORY_MAX) this.#counts.shift();
    this.#sinceFit++;
    if (this.#sinceFit < REFIT_SLOTS) return;
    this.#sinceFit = 0;
    this.#fitted = chosenForecaster.fit(this.#history, DEFAULT_FIT);
  }

  next(): number {
    return this.#fitted?.forecast(this.#history, 1).mean[0]?.[0] ?? Number.NaN;
  }

  get #history() {
    return { names: ['requests'], counts: [this.#counts], slotS: this.#slotS };
  }
}
