/** The tests of every forecasting method, in all folders. */
import { expect, it } from 'vitest';
import { backtest } from '../../../scheduler/forecast/backtest.ts';
import { lastValue } from '../../../scheduler/forecast/baseline-forecasts.ts';
import { DEFAULT_FIT, type Forecaster, type History } from '../../../scheduler/forecast/types.ts';
import { normal, seededRandom } from '../../../scheduler/simulator/random.ts';

export const SLOTS = 400;
/** A wave of 24 slots with noise, and counts that are noise around a level. */
export function waves(): History {
  const random = seededRandom(11);
  const wave = Array.from(
    { length: SLOTS },
    (_, t) => 100 + 60 * Math.sin((2 * Math.PI * t) / 24) + 4 * normal(random),
  );
  const noise = Array.from({ length: SLOTS }, () => Math.max(0, 100 + 20 * normal(random)));
  return { names: ['wave', 'noise'], counts: [wave, noise], slotS: 60 };
}

/** The laws of every method; the `remembering` ones also detect a wave, which the last value does not. */
export function forecasterLaws(remembering: readonly Forecaster[], others: readonly Forecaster[] = []): void {
  const methods = [...others, ...remembering];
  const options = { ...DEFAULT_FIT, from: 320, refitEvery: 1000 };
  const errors = (one: Forecaster) => backtest(one, waves(), options).map(({ rrmse }) => rrmse);

  it('with a memory beat the last value on a wave', () => {
    const [floor = 0] = errors(lastValue);
    for (const method of remembering) {
      expect(errors(method)[0], method.name).toBeLessThan(floor * 0.8);
    }
  });

  it('never see what comes later: a history that goes on otherwise changes no forecast', () => {
    const one = waves();
    const other: History = {
      ...one,
      counts: one.counts.map((s) => [...s.slice(0, 350), ...s.slice(350).map(() => 9e6)]),
    };
    const cut = (history: History) => ({ ...history, counts: history.counts.map((s) => s.slice(0, 350)) });
    for (const method of methods) {
      const [a, b] = [one, other].map((h) => method.fit(cut(h), DEFAULT_FIT).forecast(cut(h), 1).mean);
      expect(a, method.name).toEqual(b);
      const early = { ...options, from: 330 };
      const seen = backtest(method, cut(one), early);
      expect(backtest(method, cut(other), early), method.name).toEqual(seen);
    }
  });

  it('repeat with their seed', () => {
    for (const method of methods) {
      const of = () => method.fit(waves(), DEFAULT_FIT).forecast(waves(), 2);
      expect(of(), method.name).toEqual(of());
    }
  });

  it('give finite forecasts of gaps, days of zeros, a kind that appears or vanishes, and a ten-fold burst', () => {
    const cases: Record<string, (t: number) => number> = {
      gaps: (t) => (t % 7 === 3 ? Number.NaN : 50),
      'nothing observed': () => Number.NaN,
      zeros: () => 0,
      appears: (t) => (t < 300 ? 0 : 80),
      vanishes: (t) => (t < 300 ? 80 : 0),
      burst: (t) => (t === 399 ? 500 : 50),
    };
    for (const [name, of] of Object.entries(cases)) {
      const history: History = { names: [name], counts: [Array.from({ length: SLOTS }, (_, t) => of(t))], slotS: 60 };
      for (const method of methods) {
        const { mean, low, high } = method.fit(history, DEFAULT_FIT).forecast(history, 3);
        const all = [mean, low, high].flat(2);
        expect(
          all.every((value) => Number.isFinite(value) && value >= 0),
          `${method.name} of ${name}`,
        ).toBe(true);
      }
    }
  });
}
