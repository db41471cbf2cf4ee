/** Requests that were counted, by series (a kind, a region) and slot of time. */
export interface History {
  /** One name per series, for messages. */
  names: readonly string[];
  /** `counts[series][slot]`: requests in that slot; NaN where nothing was observed, which is not the same as 0. All series have the same slots. */
  counts: readonly (readonly number[])[];
  /** Seconds of a slot. */
  slotS: number;
}

/** What is expected of the slots after a history. */
export interface Forecast {
  /** `mean[series][step]`: requests in slot `step + 1` after the last observed one; finite and at least 0. */
  mean: number[][];
  /** The interval that holds the true count with the probability `level` of the fit, as far as its calibration tells. */
  low: number[][];
  high: number[][];
  /** What a person should know: fallbacks, gaps. One line each, at most one per series. */
  notes: string[];
}

export interface FitOptions {
  /** Slots that `forecast` will be asked for at most. */
  horizon: number;
  /** Probability that an interval holds the truth, 0 to 1. */
  level: number;
  /** Of everything random in the fit. The same history and seed give the same forecaster. */
  seed: number;
}

/** 80 % intervals of one slot ahead. */
export const DEFAULT_FIT: FitOptions = { horizon: 1, level: 0.8, seed: 1 };

export interface FittedForecaster {
  readonly name: string;
  /** `history`: the same series as in the fit, with at least the slots that came since. Never looks beyond its last slot. */
  forecast(history: History, horizon: number): Forecast;
}

/** A way to forecast. Pure: no clock, no randomness but that of the seed. */
export interface Forecaster {
  readonly name: string;
  fit(history: History, options: FitOptions): FittedForecaster;
}

/** What a method itself has to do: gaps, intervals and fallbacks are added by `calibrated`. */
export interface PointForecaster {
  readonly name: string;
  /** `values[series][slot]`, all finite. Returns `predict(values, horizon)[series][step]`. */
  fit(values: readonly (readonly number[])[], seed: number): Predict;
}

export type Predict = (values: readonly (readonly number[])[], horizon: number) => number[][];
