import { calibrated } from './conformal-intervals.ts';
import type { Forecaster } from './types.ts';

/** Forecasts that all slots have the last slot's count. Other methods are compared with this baseline. */
export const lastValue: Forecaster = calibrated({
  name: 'last value',
  fit: () => (values, horizon) => values.map((series) => new Array<number>(horizon).fill(series.at(-1) ?? 0)),
});

/** Forecasts that all slots have the mean count of the last `slots` slots. */
export function movingAverage(slots = 5): Forecaster {
  return calibrated({
    name: `moving average of ${slots}`,
    fit: () => (values, horizon) =>
      values.map((series) => {
        const recent = series.slice(-slots);
        const mean = recent.reduce((sum, value) => sum + value, 0) / Math.max(1, recent.length);
        return new Array<number>(horizon).fill(mean);
      }),
  });
}
