import {
  DEFAULT_FIT,
  type FittedForecaster,
  type Forecaster,
  type History,
} from '../../../scheduler/forecast/types.ts';
import type { World } from '../world/world.ts';
import { type DemandForecast, smoothed } from './forecast.ts';

export interface SeriesOptions {
  slotS: number;
  seed: number;
  /** Counts by origin and slot from before the run, for training; absent: the forecaster learns from the run. */
  past?: readonly (readonly number[])[];
}

/** Slots that a forecaster sees before its first fit, and between fits. */
const FIRST_FIT = 40;
const FIT_EVERY = 120;
/** Slots ahead of one forecast: the longest cold start and the slot itself. */
const HORIZON = 5;
/** Slots that are kept: six hours and the six before. */
const HISTORY_MAX = 1_000;

/**
 * Any forecaster of `scheduler/forecast` over one series per region; a region's tasks are divided over models by their
 * recent shares.
 */
export function seriesForecast(forecaster: Forecaster, world: World, options: SeriesOptions): DemandForecast {
  return new SeriesForecast(forecaster, world, options);
}

class SeriesForecast implements DemandForecast {
  readonly name: string;
  readonly #forecaster: Forecaster;
  readonly #options: SeriesOptions;
  readonly #counts: number[][];
  readonly #names: string[];
  /** Also the forecast until the first fit. */
  readonly #lately: DemandForecast;
  readonly #given: number;
  #fitted: FittedForecaster | undefined;
  #fittedAt = 0;
  /** `mean[origin][ahead]` after the newest slot. */
  #mean: number[][] | undefined;

  constructor(forecaster: Forecaster, world: World, options: SeriesOptions) {
    this.name = forecaster.name;
    this.#forecaster = forecaster;
    this.#options = options;
    this.#names = world.topology.regions.map(({ name }) => name);
    this.#counts = this.#names.map((_, origin) => [...(options.past?.[origin] ?? [])]);
    this.#given = options.past === undefined ? 0 : this.#slots;
    this.#lately = smoothed(world);
  }

  get #slots(): number {
    return this.#counts[0]?.length ?? 0;
  }

  observe(arrived: readonly (readonly number[])[]): void {
    this.#lately.observe(arrived);
    for (const [origin, series] of this.#counts.entries()) {
      series.push((arrived[origin] ?? []).reduce((sum, count) => sum + count, 0));
      if (series.length > HISTORY_MAX) series.shift();
    }
    this.#mean = undefined;
  }

  expected(_slot: number, ahead: number): number[][] {
    const lately = this.#lately.expected(0, 0);
    this.#mean ??= this.#forecast();
    return lately.map((line, origin) => {
      const total = line.reduce((sum, count) => sum + count, 0);
      const mean = this.#mean?.[origin]?.[Math.min(ahead, HORIZON - 1)] ?? total;
      return line.map((count) => (total > 0 ? (mean * count) / total : 0));
    });
  }

  #forecast(): number[][] | undefined {
    const history: History = { names: this.#names, counts: this.#counts, slotS: this.#options.slotS };
    const due = this.#fitted === undefined || (this.#given === 0 && this.#slots - this.#fittedAt >= FIT_EVERY);
    if (due && this.#slots >= FIRST_FIT) {
      this.#fitted = this.#forecaster.fit(history, { ...DEFAULT_FIT, horizon: HORIZON, seed: this.#options.seed });
      this.#fittedAt = this.#slots;
    }
    return this.#fitted?.forecast(history, HORIZON).mean;
  }
}
