import { describe, expect, it } from 'vitest';
import { backtest } from '../../../scheduler/forecast/backtest.ts';
import { lastValue, movingAverage } from '../../../scheduler/forecast/baseline-forecasts.ts';
import { chooseForecaster } from '../../../scheduler/forecast/choose-forecaster.ts';
import { ridge } from '../../../scheduler/forecast/ridge-regression.ts';
import { seasonal } from '../../../scheduler/forecast/seasonal.ts';
import { DEFAULT_FIT, type Forecaster, type History } from '../../../scheduler/forecast/types.ts';
import { normal, seededRandom } from '../../../scheduler/simulator/random.ts';
import { LengthPredictor } from '../../../shared/routing/kinds/length-predictor.ts';
import { forecasterLaws, SLOTS, waves } from './laws.ts';

describe('methods of forecasting', () => {
  forecasterLaws([seasonal(24), ridge({ lags: 30 })], [lastValue, movingAverage(5)]);

  it('that average beat the last value on noise', () => {
    const errors = (one: Forecaster) =>
      backtest(one, waves(), { ...DEFAULT_FIT, from: 320, refitEvery: 1000 })[1]?.rrmse;
    expect(errors(movingAverage(15))).toBeLessThan((errors(lastValue) ?? 0) * 0.85);
  });
});

describe('the choice of a method', () => {
  it('is by series, and the last value where nothing beats it', () => {
    const random = seededRandom(4);
    const walk = Array.from({ length: SLOTS }, () => 0);
    for (let t = 1; t < SLOTS; t++) walk[t] = Math.max(0, (walk[t - 1] ?? 0) + 300 + 30 * normal(random) - 299);
    const { counts, slotS } = waves();
    const history: History = { names: ['walk', 'noise'], counts: [walk.map((v) => v + 5000), counts[1] ?? []], slotS };
    const { choices, fitted } = chooseForecaster(history, 1);
    expect(choices[0]).toMatchObject({ chosen: 'last value' });
    expect(choices[0]?.why).toContain('no method beats the last value');
    expect(choices[1]?.chosen).not.toBe('last value');
    expect(choices[1]?.why).toContain('the last value');
    expect(fitted.forecast(history, 2).mean.map((steps) => steps.length)).toEqual([2, 2]);
  });

  it('of a history too short to compare is the last value, and says so', () => {
    const { choices } = chooseForecaster({ names: ['a'], counts: [[1, 2, 3]], slotS: 60 }, 1);
    expect(choices[0]).toMatchObject({ chosen: 'last value' });
    expect(choices[0]?.why).toContain('too few');
  });
});

describe('the length of an answer', () => {
  it('is predicted from the same sender, then from like prompts, then from all', () => {
    const predictor = new LengthPredictor();
    for (let i = 0; i < 50; i++) {
      predictor.learn({ input: 1000, sender: 'code' }, 20);
      predictor.learn({ input: 1000, sender: 'chat' }, 300);
    }
    expect(predictor.predict({ input: 1000, sender: 'code' }).output).toBeCloseTo(20, 0);
    expect(predictor.predict({ input: 1000, sender: 'chat' }).output).toBeCloseTo(300, 0);
    expect(predictor.predict({ input: 1000, sender: 'new' }).output).toBeGreaterThan(20);
    expect(predictor.predict({ input: 1000, sender: 'chat', maxTokens: 16 }).output).toBe(16);
  });
});

describe('a method that was chosen', () => {
  it('gives way to the last value while that is better, and says so', () => {
    const random = seededRandom(21);
    const noise = Array.from({ length: 200 }, () => Math.max(0, 100 + 20 * normal(random)));
    const history = (counts: number[]): History => ({ names: ['kind'], counts: [counts], slotS: 60 });
    const { fitted, choices } = chooseForecaster(history(noise), 1, [movingAverage(15)]);
    expect(choices[0]?.chosen).toBe('moving average of 15');
    expect(fitted.forecast(history(noise), 1).notes).toEqual([]);
    const climbs = [...noise, ...Array.from({ length: 30 }, (_, t) => 100 + 50 * t)];
    const late = fitted.forecast(history(climbs), 1);
    expect(late.mean).toEqual([[climbs.at(-1)]]);
    expect(late.notes[0]).toContain('the last value was better');
  });
});
