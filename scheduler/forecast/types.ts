/** Number of requests in each slot, by series (such as a kind or a region). */
export interface History {
  /** One name per series, for messages. */
  names: readonly string[];
  /**
   * Requests as `counts[series][slot]`; NaN if the slot was not observed, which differs from 0. All series have the
   * same slots.
   */
  counts: readonly (readonly number[])[];
  /** Duration of a slot, seconds. */
  slotS: number;
}

/** Expected requests of the slots after a history. */
export interface Forecast {
  /**
   * Expected requests as `mean[series][step]`, in slot `step + 1` after the last observed one; finite and at least 0.
   */
  mean: number[][];
  /**
   * Lower end of the interval that contains the true count with the probability `level` of the fit, as far as the
   * method is calibrated.
   */
  low: number[][];
  /** Upper end of the interval. */
  high: number[][];
  /** Notes for people about fallbacks and gaps: at most one line per series. */
  notes: string[];
}

export interface FitOptions {
  /** Maximum number of slots ahead for which `forecast` will be called. */
  horizon: number;
  /** Probability that an interval contains the true count, 0 to 1. */
  level: number;
  /** Seed of the fit's randomness. The same history and seed give the same forecaster. */
  seed: number;
}

/** Fits intervals of 80 % for one slot ahead. */
export const DEFAULT_FIT: FitOptions = { horizon: 1, level: 0.8, seed: 1 };

export interface FittedForecaster {
  readonly name: string;
  /**
   * Forecasts the `horizon` slots after the end of `history`, which must have the same series as the history of the
   * fit.
   */
  forecast(history: History, horizon: number): Forecast;
}

/** A forecasting method. Pure: no clock, and no randomness except from the seed. */
export interface Forecaster {
  readonly name: string;
  fit(history: History, options: FitOptions): FittedForecaster;
}

/** The part that each method implements. `calibrated` fills gaps in the history, and adds intervals and fallbacks. */
export interface PointForecaster {
  readonly name: string;
  /**
   * `values[series][slot]` are all finite. Returns a function with the result `predict(values, horizon)[series][step]`.
   */
  fit(values: readonly (readonly number[])[], seed: number): Predict;
}

export type Predict = (values: readonly (readonly number[])[], horizon: number) => number[][];
