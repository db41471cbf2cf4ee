import { backtest, type Score } from './backtest.ts';
import { lastValue, movingAverage } from './persistence.ts';
import { ridge } from './ridge.ts';
import type { FitOptions, FittedForecaster, Forecast, Forecaster, History } from './types.ts';

/** Why a series is forecast as it is. */
export interface Choice {
  series: string;
  chosen: string;
  /** Relative errors in the backtest, of each method by name. */
  rrmse: Record<string, number>;
  /** For people. */
  why: string;
}

export interface Chosen {
  fitted: FittedForecaster;
  choices: Choice[];
}

/** Must be this much better than the last value, as a share of its error: less is chance. */
const BETTER = 0.03;
/** Share of the history, at its end, that methods are compared on. */
const TEST_SHARE = 0.3;
/** Slots below which nothing can be compared. */
const SLOTS_MIN = 20;
const FIT: FitOptions = { horizon: 3, level: 0.8, seed: 1 };

/** Quick members, for every minute; networks are added where there is time to train them. */
export const QUICK: readonly Forecaster[] = [
  movingAverage(3),
  movingAverage(5),
  movingAverage(15),
  ridge({ lags: 10 }),
];

/**
 * The best method for each series by a backtest on the last third of the history. The last value is the floor: another method is chosen only where it is
 * clearly better, and the choice says which it was and by how much.
 */
export function chooseForecaster(
  history: History,
  seed: number,
  members: readonly Forecaster[] = QUICK,
  options: Partial<FitOptions> = {},
): Chosen {
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
  return { fitted: new BySeries(choices, fitted), choices };
}

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

/** Each series by its own method. */
class BySeries implements FittedForecaster {
  readonly name: string;
  readonly #choices: readonly Choice[];
  readonly #fitted: ReadonlyMap<string, FittedForecaster>;

  constructor(choices: readonly Choice[], fitted: ReadonlyMap<string, FittedForecaster>) {
    this.name = 'best by kind';
    this.#choices = choices;
    this.#fitted = fitted;
  }

  forecast(history: History, horizon: number): Forecast {
    const found = new Map([...this.#fitted].map(([name, one]) => [name, one.forecast(history, horizon)]));
    const forecast: Forecast = { mean: [], low: [], high: [], notes: [] };
    for (const [s, { chosen, series }] of this.#choices.entries()) {
      const own = found.get(chosen);
      const zeros = new Array<number>(horizon).fill(0);
      forecast.mean.push(own?.mean[s] ?? zeros);
      forecast.low.push(own?.low[s] ?? zeros);
      forecast.high.push(own?.high[s] ?? zeros);
      forecast.notes.push(...(own?.notes ?? []).filter((note) => note.startsWith(`${series}:`)));
    }
    return forecast;
  }
}
