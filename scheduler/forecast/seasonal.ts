import { calibrated } from './conformal-intervals.ts';
import type { Forecaster } from './types.ts';

/** How much the last slot's difference from the season counts, because days differ in their level. */
const LEVEL_WEIGHT = 0.5;

/**
 * Forecasts the count of the same slot one season earlier, plus half of the last slot's difference from its own value
 * one season earlier. Without a full season, it forecasts the last value. `period`: number of slots of a season, such
 * as 1,440 minutes.
 */
export function seasonal(period: number): Forecaster {
  return calibrated({
    name: `season of ${period}`,
    fit: () => (values, horizon) =>
      values.map((series) => {
        const last = series.at(-1) ?? 0;
        const moved = LEVEL_WEIGHT * (last - (series.at(-1 - period) ?? last));
        return Array.from({ length: horizon }, (_, step) => {
          const same = series[series.length + (step % period) - period];
          return same === undefined ? last : same + moved;
        });
      }),
  });
}
