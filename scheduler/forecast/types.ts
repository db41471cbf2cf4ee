/** Counted requests, by series (a kind, a region) and slot. */
export interface History {
  /** One name per series, for messages. */
  names: readonly string[];
  /**
   * `counts[series][slot]`: requests in that slot; NaN if it was not observed, which differs from 0. All series have
   * the same slots.
   */
  counts: readonly (readonly number[])[];
  /** Seconds of a slot. */
  slotS: number;
}

/** Expected requests of the slots after a history. */
export interface Forecast {
  /** `mean[series][step]`: requests in slot `step + 1` after the last observed one; finite and at least 0. */
  mean: number[][];
  /** The interval that contains the true count with the probability `level` of the fit, as far as it is calibrated. */
  low: number[][];
  high: number[][];
  /** Notes for people: fallbacks, gaps. One line each, at most one per series. */
  notes: string[];
}

export interface FitOptions {
  /** Most slots that `forecast` will be called for. */
  horizon: number;
  /** Probability that an interval contains the truth, 0 to 1. */
  level: number;
  /** Seed of all randomness in the fit. The same history and seed give the same forecaster. */
  seed: number;
}

/** 80 % intervals of one slot ahead. */
export const DEFAULT_FIT: FitOptions = { horizon: 1, level: 0.8, seed: 1 };

export interface FittedForecaster {
  readonly name: string;
  /** `history`: the series of the fit, with at least the slots that followed. Never looks beyond its last slot. */
  forecast(history: History, horizon: number): Forecast;
}

/** A forecasting method. Pure: no clock, and no randomness except the seed's. */
export interface Forecaster {
  readonly name: string;
  fit(history: History, options: FitOptions): FittedForecaster;
}

/** The part that each method implements; `calibrated` adds gaps, intervals and fallbacks. */
export interface PointForecaster {
  readonly name: string;
  /** `values[series][slot]`, all finite. Returns `predict(values, horizon)[series][step]`. */
  fit(values: readonly (readonly number[])[], seed: number): Predict;
}

export type Predict = (values: readonly (readonly number[])[], horizon: number) => number[][];
