/** Forecasts the demand of the slots ahead from counts. */

import { movingAverage } from '../forecast/baseline-forecasts.ts';
import { type ChosenForecaster, chooseForecaster } from '../forecast/choose-forecaster.ts';
import { ridge } from '../forecast/ridge-regression.ts';
import { seasonal } from '../forecast/seasonal.ts';
import type { Forecast, Forecaster, History } from '../forecast/types.ts';
import type { ForecastDemand } from './follow-problem.ts';

/** Methods are compared and fitted again each time this many slots have passed. */
const REFIT_SLOTS = 10;
const LEVEL = 0.8;

/** Slots of history that a season needs: two periods, because with fewer there is no earlier period to compare with. */
export const slotsOf = (season: number): number => 2 * season;

export interface ExpectedDemand {
  /** First slot of the forecast. */
  slot: number;
  forecast: Forecast;
  /** Method of each kind, and why it was chosen. */
  methods: { kind: string; method: string; why: string }[];
}

/**
 * Forecasts the demand of one model. `season`: number of slots after which the load repeats, such as the number of
 * slots in a day.
 */
export class DemandForecaster {
  readonly #season: number;
  #chosen: ChosenForecaster | undefined;
  #fittedAt = Number.NEGATIVE_INFINITY;
  #kinds = '';

  constructor(season: number) {
    this.#season = season;
  }

  /**
   * `end`: the slot after the last observed one. `lag`: number of slots between `end` and the first slot that a
   * decision can still affect.
   */
  expect(history: History, end: number, lag: number, horizon: number): ExpectedDemand {
    const kinds = history.names.join('\n');
    if (this.#chosen === undefined || kinds !== this.#kinds || end - this.#fittedAt >= REFIT_SLOTS) {
      this.#chosen = chooseForecaster(history, 1, this.#members(history), {
        horizon: lag + horizon,
        level: LEVEL,
        lenient: true,
      });
      this.#fittedAt = end;
      this.#kinds = kinds;
    }
    const { fitted, choices } = this.#chosen;
    const whole = fitted.forecast(history, lag + horizon);
    const later = (rows: number[][]) => rows.map((steps) => steps.slice(lag));
    const forecast = { mean: later(whole.mean), low: later(whole.low), high: later(whole.high), notes: whole.notes };
    const methods = choices.map(({ series, chosen, why }) => ({ kind: series, method: chosen, why }));
    return { slot: end + lag, forecast, methods };
  }

  #members({ counts }: History): Forecaster[] {
    const long = (counts[0]?.length ?? 0) >= slotsOf(this.#season);
    return [movingAverage(3), movingAverage(5), ridge({ lags: 10 }), ...(long ? [seasonal(this.#season)] : [])];
  }
}

/** Converts requests per slot to requests/s, for each step of the forecast. */
export function demandOf(
  model: string,
  kinds: readonly string[],
  { mean, high }: Forecast,
  slotS: number,
): ForecastDemand {
  const steps = mean[0]?.length ?? 0;
  const rates = (rows: number[][]) =>
    Array.from({ length: steps }, (_, step) => rows.map((series) => Math.max(0, series[step] ?? 0) / slotS));
  return { model, kinds, mean: rates(mean), high: rates(high) };
}
