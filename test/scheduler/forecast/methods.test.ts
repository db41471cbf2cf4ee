import { describe, expect, it } from 'vitest';
import { backtest } from '../../../scheduler/forecast/backtest.ts';
import { chooseForecaster } from '../../../scheduler/forecast/choose.ts';
import { lengthErrors } from '../../../scheduler/forecast/lengths.ts';
import { lstm } from '../../../scheduler/forecast/lstm.ts';
import { mlp } from '../../../scheduler/forecast/mlp.ts';
import { lastValue, movingAverage } from '../../../scheduler/forecast/persistence.ts';
import { ridge } from '../../../scheduler/forecast/ridge.ts';
import { seasonal } from '../../../scheduler/forecast/seasonal.ts';
import { DEFAULT_FIT, type Forecaster, type History } from '../../../scheduler/forecast/types.ts';
import { normal, seeded } from '../../../scheduler/serving/random.ts';
import { LengthPredictor } from '../../../shared/routing/kinds/length-predictor.ts';

const SLOTS = 400;
/** A wave of 24 slots with noise, and counts that are noise around a level. */
function waves(): History {
  const random = seeded(11);
  const wave = Array.from(
    { length: SLOTS },
    (_, t) => 100 + 60 * Math.sin((2 * Math.PI * t) / 24) + 4 * normal(random),
  );
  const noise = Array.from({ length: SLOTS }, () => Math.max(0, 100 + 20 * normal(random)));
  return { names: ['wave', 'noise'], counts: [wave, noise], slotS: 60 };
}

const METHODS: Forecaster[] = [
  lastValue,
  movingAverage(5),
  seasonal(24),
  ridge({ lags: 30 }),
  lstm({ window: 12, hidden: 8, epochs: 5 }),
  mlp({ window: 24, hidden: [16, 8], epochs: 8 }),
];

describe('methods of forecasting', () => {
  const options = { ...DEFAULT_FIT, from: 320, refitEvery: 1000 };
  const errors = (one: Forecaster) => backtest(one, waves(), options).map(({ rrmse }) => rrmse);

  it('with a memory beat the last value on a wave', () => {
    const [floor = 0] = errors(lastValue);
    for (const method of [seasonal(24), ridge({ lags: 30 }), METHODS[4], METHODS[5]]) {
      if (method === undefined) throw new Error('a method is missing');
      expect(errors(method)[0], method.name).toBeLessThan(floor * 0.8);
    }
  });

  it('that average beat the last value on noise', () => {
    expect(errors(movingAverage(15))[1]).toBeLessThan((errors(lastValue)[1] ?? 0) * 0.85);
  });

  it('never see what comes later: a history that goes on otherwise changes no forecast', () => {
    const one = waves();
    const other: History = {
      ...one,
      counts: one.counts.map((s) => [...s.slice(0, 350), ...s.slice(350).map(() => 9e6)]),
    };
    const cut = (history: History) => ({ ...history, counts: history.counts.map((s) => s.slice(0, 350)) });
    for (const method of METHODS) {
      const [a, b] = [one, other].map((h) => method.fit(cut(h), DEFAULT_FIT).forecast(cut(h), 1).mean);
      expect(a, method.name).toEqual(b);
      const early = { ...options, from: 330 };
      const seen = backtest(method, cut(one), early);
      expect(backtest(method, cut(other), early), method.name).toEqual(seen);
    }
  });

  it('repeat with their seed', () => {
    for (const method of METHODS) {
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
      for (const method of METHODS) {
        const { mean, low, high } = method.fit(history, DEFAULT_FIT).forecast(history, 3);
        const all = [mean, low, high].flat(2);
        expect(
          all.every((value) => Number.isFinite(value) && value >= 0),
          `${method.name} of ${name}`,
        ).toBe(true);
      }
    }
  });
});

describe('the choice of a method', () => {
  it('is by series, and the last value where nothing beats it', () => {
    const random = seeded(4);
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

  it('has an error that counts no request before its answer is there', () => {
    const same = Array.from({ length: 100 }, () => ({ input: 10, output: 1000 }));
    const { requests, withinTwo } = lengthErrors(same);
    expect(requests).toBe(100);
    // The first one is not known from anything.
    expect(withinTwo).toBeCloseTo(0.99, 5);
  });
});

describe('a method that was chosen', () => {
  it('gives way to the last value while that is better, and says so', () => {
    const random = seeded(21);
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
