import { SchedulerError } from '../errors.ts';
import { hasGaps, withoutGaps } from './fill-gaps.ts';
import type { FitOptions, FittedForecaster, Forecast, Forecaster, History, PointForecaster, Predict } from './types.ts';

/**
 * Last part of the history, as a share. Errors on it determine the intervals (split conformal prediction, Vovk et al.
 * 2005).
 */
const CALIBRATION_SHARE = 0.2;
/** Maximum number of errors that are collected for each series and step; more would hardly change a quantile. */
const ERRORS_MAX = 500;

/**
 * Adds to a method what all methods need. Gaps in the history are filled. Intervals are computed from errors on the
 * last fifth of the history, which the fit did not use. A prediction that is not a finite count is replaced by the last
 * value, and the forecast notes that.
 */
export function calibrated(point: PointForecaster): Forecaster {
  return {
    name: point.name,
    fit(history, options) {
      const values = valuesOf(history);
      const slots = values[0]?.length ?? 0;
      const cut = slots - Math.floor(slots * CALIBRATION_SHARE);
      const early = point.fit(
        values.map((series) => series.slice(0, cut)),
        options.seed,
      );
      const errors = rollingErrors(early, values, cut, options.horizon);
      const predict = point.fit(values, options.seed);
      return new Calibrated(point.name, predict, widths(errors, options), history.names);
    },
  };
}

function valuesOf({ names, counts }: History): number[][] {
  if (counts.length !== names.length || counts.some((series) => series.length !== counts[0]?.length))
    throw new SchedulerError('bad_input', 'each series of a history needs a name and the same number of slots');
  return counts.map(withoutGaps);
}

/** Errors as `errors[series][step]`: truth minus prediction, over all origins from `cut` on. */
function rollingErrors(predict: Predict, values: readonly number[][], cut: number, horizon: number): number[][][] {
  const slots = values[0]?.length ?? 0;
  const errors = values.map(() => Array.from({ length: horizon }, (): number[] => []));
  const stride = Math.max(1, Math.ceil((slots - cut) / ERRORS_MAX));
  for (let origin = Math.max(1, cut); origin < slots; origin += stride) {
    const seen = values.map((series) => series.slice(0, origin));
    const predicted = predict(seen, Math.min(horizon, slots - origin));
    values.forEach((series, s) => {
      for (const [step, mean] of (predicted[s] ?? []).entries()) {
        const error = (series[origin + step] ?? Number.NaN) - mean;
        if (Number.isFinite(error)) errors[s]?.[step]?.push(error);
      }
    });
  }
  return errors;
}

/** Distances from the prediction to the ends of the interval. `undefined`: no error is known for that step. */
type Width = { below: number; above: number } | undefined;

function widths(errors: readonly number[][][], { level }: FitOptions): Width[][] {
  return errors.map((steps) =>
    steps.map((found) => {
      if (found.length === 0) return undefined;
      const sorted = found.toSorted((a, b) => a - b);
      // Conformal prediction uses (n + 1) instead of n, because the sample is finite.
      const at = (q: number) =>
        sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * (sorted.length + 1)) - 1))];
      return { below: Math.min(0, at((1 - level) / 2) ?? 0), above: Math.max(0, at((1 + level) / 2) ?? 0) };
    }),
  );
}

class Calibrated implements FittedForecaster {
  readonly name: string;
  readonly #predict: Predict;
  readonly #widths: Width[][];
  readonly #names: readonly string[];

  constructor(name: string, predict: Predict, found: Width[][], names: readonly string[]) {
    this.name = name;
    this.#predict = predict;
    this.#widths = found;
    this.#names = names;
  }

  forecast(history: History, horizon: number): Forecast {
    const values = valuesOf(history);
    const forecast: Forecast = { mean: [], low: [], high: [], notes: [] };
    const predicted = values.length === 0 ? [] : this.#predict(values, horizon);
    values.forEach((series, s) => {
      const last = series.at(-1) ?? 0;
      const raw = Array.from({ length: horizon }, (_, step) => predicted[s]?.[step] ?? Number.NaN);
      const sound = raw.every(Number.isFinite);
      const mean = raw.map((value) => Math.max(0, sound ? value : last));
      const name = this.#names[s] ?? `series ${s}`;
      if (!sound) forecast.notes.push(`${name}: ${this.name} returned no number; the last value is used instead`);
      else if (hasGaps(history.counts[s] ?? [])) forecast.notes.push(`${name}: gaps in the history were filled`);
      forecast.mean.push(mean);
      forecast.low.push(mean.map((value, step) => Math.max(0, value + this.#width(s, step, value).below)));
      forecast.high.push(mean.map((value, step) => value + this.#width(s, step, value).above));
    });
    return forecast;
  }

  /**
   * For steps without known errors, intervals grow with the step like those of a random walk. If no errors are known at
   * all, the intervals are those of Poisson counts (±1.28σ contains 80 %).
   */
  #width(series: number, step: number, mean: number): { below: number; above: number } {
    const known = this.#widths[series] ?? [];
    const own = known[step];
    if (own !== undefined) return own;
    const at = known.findLastIndex((width) => width !== undefined);
    const width = known[at];
    const growth = Math.sqrt((step + 1) / (at + 1));
    if (width !== undefined) return { below: width.below * growth, above: width.above * growth };
    const deviation = 1.28 * Math.sqrt(Math.max(1, mean));
    return { below: -deviation, above: deviation };
  }
}
