import { backtest, type Score, until } from './backtest.ts';
import { lastValue, movingAverage } from './baseline-forecasts.ts';
import { ridge } from './ridge-regression.ts';
import type { FitOptions, FittedForecaster, Forecast, Forecaster, History } from './types.ts';

/** The method that was chosen for a series, and why. */
interface Choice {
  series: string;
  chosen: string;
  /** Relative error of each method in the backtest, by name of the method. */
  rrmse: Record<string, number>;
  /** The reason, for people. */
  why: string;
}

export interface ChosenForecaster {
  fitted: FittedForecaster;
  choices: Choice[];
}

/** A method replaces the last value only if its error is lower by this share; a smaller difference is chance. */
const BETTER = 0.03;
/** Last part of the history, as a share, on which methods are compared. */
const TEST_SHARE = 0.3;
/** Minimum number of slots for a comparison of methods. */
const SLOTS_MIN = 20;
const FIT: FitOptions = { horizon: 3, level: 0.8, seed: 1 };

/** Default methods. All are fast enough to be fitted again every few minutes. */
const QUICK: readonly Forecaster[] = [movingAverage(3), movingAverage(5), movingAverage(15), ridge({ lags: 10 })];

/**
 * Chooses the best method for each series by a backtest on the last 30 % of the history. The last value is the
 * baseline: another method is chosen only if it is clearly better. The choice names the method and its error.
 */
export function chooseForecaster(
  history: History,
  seed: number,
  members: readonly Forecaster[] = QUICK,
  { lenient = false, ...options }: Partial<FitOptions> & { lenient?: boolean } = {},
): ChosenForecaster {
  const fit = { ...FIT, ...options, seed };
  const slots = history.counts[0]?.length ?? 0;
  const all = [lastValue, ...members];
  if (slots < SLOTS_MIN) {
    const why = `${slots} slots are too few to compare methods: the last value is used`;
    const choices = history.names.map((series) => ({ series, chosen: lastValue.name, rrmse: {}, why }));
    return { fitted: lastValue.fit(history, fit), choices };
  }
  const from = slots - Math.floor(slots * TEST_SHARE);
  const scores = all.map((one) => backtest(one, history, { ...fit, from, refitEvery: slots }));
  const choices = history.names.map((series, s) => choiceOf(series, all, scores, s));
  const fitted = new Map(
    all
      .filter(({ name }) => choices.some(({ chosen }) => chosen === name))
      .map((one) => [one.name, one.fit(history, fit)]),
  );
  return { fitted: new BySeries(choices, fitted, lastValue.fit(history, fit), lenient), choices };
}

/** The same choice as a method: it fits the best method of each series by a backtest on the history. */
export const chosenForecaster: Forecaster = {
  name: 'best by backtest',
  fit: (history, options) => chooseForecaster(history, options.seed, QUICK, options).fitted,
};

function choiceOf(series: string, all: readonly Forecaster[], scores: readonly Score[][], s: number): Choice {
  const rrmse = Object.fromEntries(all.map(({ name }, m) => [name, scores[m]?.[s]?.rrmse ?? Number.POSITIVE_INFINITY]));
  const floor = rrmse[lastValue.name] ?? Number.POSITIVE_INFINITY;
  let [chosen, least] = [lastValue.name, floor * (1 - BETTER)];
  for (const [name, error] of Object.entries(rrmse)) if (error < least) [chosen, least] = [name, error];
  const why =
    chosen === lastValue.name
      ? `no method beats the last value (relative error ${floor.toFixed(3)}) by ${BETTER * 100} %`
      : `${chosen} has a relative error of ${least.toFixed(3)}, the last value ${floor.toFixed(3)}`;
  return { series, chosen, rrmse, why };
}

/**
 * A chosen method is used only while it beats the last value over this many newest slots, because the choice becomes
 * invalid if the mix of requests shifts.
 */
const WATCHED_SLOTS = 12;
const MADE_MAX = 8 * WATCHED_SLOTS;
/**
 * With `lenient`, the last value replaces a chosen method only if the method's squared error exceeds this multiple of
 * the last value's by more than Poisson's noise. A lower limit would replace a seasonal method between two changes of
 * level, although only the season predicts the next change.
 */
const LENIENT = 3;

/** Forecasts each series by its chosen method, or by the last value if the last value was better in the last slots. */
class BySeries implements FittedForecaster {
  readonly name: string;
  readonly #choices: readonly Choice[];
  readonly #fitted: ReadonlyMap<string, FittedForecaster>;
  readonly #floor: FittedForecaster;
  readonly #lenient: boolean;
  /** Remembered forecasts of one slot, by method and origin, because later slots need them again. */
  readonly #made = new Map<string, number[]>();

  constructor(
    choices: readonly Choice[],
    fitted: ReadonlyMap<string, FittedForecaster>,
    floor: FittedForecaster,
    lenient: boolean,
  ) {
    this.name = 'best by kind';
    this.#choices = choices;
    this.#fitted = fitted;
    this.#floor = floor;
    this.#lenient = lenient;
  }

  /**
   * True if the last value beat the chosen method: compares squared errors of forecasts one slot ahead, over the last
   * slots.
   */
  #worseOfLate(chosen: string, history: History, s: number): boolean {
    const counts = history.counts[s] ?? [];
    let [own, floor, slots, chance] = [0, 0, 0, 0];
    for (let origin = Math.max(1, counts.length - WATCHED_SLOTS); origin < counts.length; origin++) {
      const [truth, last] = [counts[origin] ?? Number.NaN, counts[origin - 1] ?? Number.NaN];
      if (!Number.isFinite(truth) || !Number.isFinite(last)) continue;
      own += (truth - (this.#madeAt(chosen, history, origin)[s] ?? last)) ** 2;
      floor += (truth - last) ** 2;
      chance += truth;
      slots++;
    }
    if (slots < WATCHED_SLOTS / 2) return false;
    return this.#lenient ? own > LENIENT * floor + 2 * chance : own > floor;
  }

  #madeAt(chosen: string, history: History, origin: number): number[] {
    const key = `${chosen}:${origin}`;
    const known = this.#made.get(key);
    if (known !== undefined) return known;
    const mean =
      this.#fitted
        .get(chosen)
        ?.forecast(until(history, origin), 1)
        .mean.map((steps) => steps[0] ?? 0) ?? [];
    // Bounds the memory: forecasts of older slots are not needed again.
    if (this.#made.size >= MADE_MAX) this.#made.clear();
    this.#made.set(key, mean);
    return mean;
  }

  forecast(history: History, horizon: number): Forecast {
    const found = new Map([...this.#fitted].map(([name, one]) => [name, one.forecast(history, horizon)]));
    const forecast: Forecast = { mean: [], low: [], high: [], notes: [] };
    for (const [s, { chosen, series }] of this.#choices.entries()) {
      const late = chosen !== lastValue.name && this.#worseOfLate(chosen, history, s);
      const own = late ? this.#floor.forecast(history, horizon) : found.get(chosen);
      if (late) forecast.notes.push(`${series}: the last value was better than ${chosen} recently and is used instead`);
      const zeros = new Array<number>(horizon).fill(0);
      forecast.mean.push(own?.mean[s] ?? zeros);
      forecast.low.push(own?.low[s] ?? zeros);
      forecast.high.push(own?.high[s] ?? zeros);
      forecast.notes.push(...(own?.notes ?? []).filter((note) => note.startsWith(`${series}:`)));
    }
    return forecast;
  }
}
