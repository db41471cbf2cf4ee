import type { FitOptions, Forecaster, History } from './types.ts';

interface BacktestOptions extends FitOptions {
  /** First slot that is forecast; earlier slots are only for fitting. */
  from: number;
  /** The method is fitted again after this many slots. */
  refitEvery: number;
}

/** Accuracy of a method on one series. */
export interface Score {
  /** sqrt(mean squared error) / mean count, one slot ahead. Infinity if no request arrived. */
  rrmse: number;
  /** Mean absolute error, requests. */
  mae: number;
  /** Share of the true counts inside the interval. */
  coverage: number;
  slots: number;
}

/**
 * Rolling origin (Tashman 2000): at each slot from `from` on, the method forecasts the next slot from the slots before
 * it. Fits use the slots before their origin. Slots that were not observed are not scored.
 */
export function backtest(forecaster: Forecaster, history: History, options: BacktestOptions): Score[] {
  const slots = history.counts[0]?.length ?? 0;
  const sums = history.names.map(() => ({ square: 0, absolute: 0, inside: 0, truth: 0, n: 0 }));
  let fitted = forecaster.fit(until(history, options.from), options);
  for (let origin = options.from; origin < slots; origin++) {
    const seen = until(history, origin);
    if ((origin - options.from) % options.refitEvery === 0 && origin > options.from)
      fitted = forecaster.fit(seen, options);
    const { mean, low, high } = fitted.forecast(seen, 1);
    for (const [s, sum] of sums.entries()) {
      const truth = history.counts[s]?.[origin] ?? Number.NaN;
      if (!Number.isFinite(truth)) continue;
      const error = truth - (mean[s]?.[0] ?? 0);
      sum.square += error * error;
      sum.absolute += Math.abs(error);
      sum.truth += truth;
      sum.n++;
      if (truth >= (low[s]?.[0] ?? 0) && truth <= (high[s]?.[0] ?? 0)) sum.inside++;
    }
  }
  return sums.map(({ square, absolute, inside, truth, n }) => ({
    rrmse: truth > 0 ? Math.sqrt(square / n) / (truth / n) : n > 0 && square === 0 ? 0 : Number.POSITIVE_INFINITY,
    mae: n > 0 ? absolute / n : 0,
    coverage: n > 0 ? inside / n : 1,
    slots: n,
  }));
}

/** Returns a copy of the first slots of a history, so that a method cannot look ahead. */
export function until(history: History, slots: number): History {
  return { ...history, counts: history.counts.map((series) => series.slice(0, slots)) };
}
