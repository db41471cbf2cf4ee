import { describe, expect, it } from 'vitest';
import { lastValue, movingAverage } from '../../../scheduler/forecast/baseline-forecasts.ts';
import { calibrated } from '../../../scheduler/forecast/conformal-intervals.ts';
import { DEFAULT_FIT, type History } from '../../../scheduler/forecast/types.ts';
import { normal, seededRandom } from '../../../scheduler/simulator/random.ts';

const history = (...counts: number[][]): History => ({
  names: counts.map((_, i) => `kind ${i}`),
  counts,
  slotS: 60,
});

describe('forecasts', () => {
  it('of the last value repeat it, of the moving average its mean', () => {
    const seen = history([1, 2, 3, 4, 5, 6]);
    expect(lastValue.fit(seen, DEFAULT_FIT).forecast(seen, 3).mean).toEqual([[6, 6, 6]]);
    expect(movingAverage(3).fit(seen, DEFAULT_FIT).forecast(seen, 1).mean).toEqual([[5]]);
  });

  it('bridge slots that were not observed with the last observed count, and say so', () => {
    const seen = history([10, 12, Number.NaN, Number.NaN], [0, 0, 0, 0]);
    const forecast = lastValue.fit(seen, DEFAULT_FIT).forecast(seen, 1);
    expect(forecast.mean).toEqual([[12], [0]]);
    expect(forecast.notes).toEqual(['kind 0: gaps in the history were filled']);
  });

  it('fall back to the last value where a method gives NaN or infinity, and say so', () => {
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const broken = calibrated({ name: 'broken', fit: () => (values, h) => values.map(() => new Array(h).fill(bad)) });
      const seen = history([4, 8, 15]);
      const forecast = broken.fit(seen, DEFAULT_FIT).forecast(seen, 2);
      expect(forecast.mean).toEqual([[15, 15]]);
      expect(forecast.notes[0]).toContain('broken returned no number');
      expect(forecast.high.flat().every(Number.isFinite)).toBe(true);
    }
  });

  it('are never negative', () => {
    const falling = calibrated({ name: 'falling', fit: () => (values) => values.map(() => [-3]) });
    const seen = history([1, 1, 1]);
    const forecast = falling.fit(seen, DEFAULT_FIT).forecast(seen, 1);
    expect(forecast.mean).toEqual([[0]]);
    expect(forecast.low[0]?.[0]).toBe(0);
  });

  it('have intervals that hold the truth about as often as asked, at each step ahead', () => {
    const random = seededRandom(3);
    const counts: number[] = [];
    let level = 500;
    for (let i = 0; i < 3000; i++) {
      level += 4 * normal(random);
      counts.push(Math.max(0, level));
    }
    const fitted = lastValue.fit(history(counts.slice(0, 1500)), { horizon: 5, level: 0.8, seed: 1 });
    for (const step of [0, 4]) {
      let inside = 0;
      for (let origin = 1500; origin < 2990; origin++) {
        const { low, high } = fitted.forecast(history(counts.slice(0, origin)), 5);
        const truth = counts[origin + step] ?? 0;
        if (truth >= (low[0]?.[step] ?? 0) && truth <= (high[0]?.[step] ?? 0)) inside++;
      }
      expect(inside / 1490).toBeGreaterThan(0.7);
      expect(inside / 1490).toBeLessThan(0.9);
    }
  });

  it('of an empty history are 0', () => {
    const seen = history([]);
    const forecast = movingAverage().fit(seen, DEFAULT_FIT).forecast(seen, 1);
    expect(forecast.mean).toEqual([[0]]);
  });

  it('refuse series of unequal length', () => {
    expect(() => lastValue.fit(history([1, 2], [1]), DEFAULT_FIT)).toThrow('the same number of slots');
  });
});
