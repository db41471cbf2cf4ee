import type { FitOptions, Forecaster, History } from './types.ts';

interface BacktestOptions extends FitOptions {
  /** First slot that is forecast; the slots before it are only used to fit the method. */
  from: number;
  /** Number of slots after which the method is fitted again. */
  refitEvery: number;
}

/** Accuracy of a method on one series. */
export interface Score {
  /** Relative error: sqrt(mean squared error) / mean count, one slot ahead. Infinity if no request arrived. */
  rrmse: number;
  /** Mean absolute error, in requests. */
  mae: number;
  /** Share of the true counts that were inside the forecast's interval. */
  coverage: number;
  slots: number;
}

/**
 * Tests a method by rolling origin (Tashman 2000): the method forecasts each slot, beginning with `from`, from all
 * slots before it. A fit uses only slots before the forecast one. Slots that were not observed are not scored.
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

/** Returns a copy of a history's first slots, so that a method cannot use later ones. */
export function until(history: History, slots: number): History {
  return { ...history, counts: history.counts.map((series) => series.slice(0, slots)) };
}
