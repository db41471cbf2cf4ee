import type { PointForecaster, Predict } from '../../scheduler/forecast/types.ts';
import { type Random, seededRandom } from '../../scheduler/simulator/random.ts';

/**
 * A network that is trained on windows of all series together: `window × series` standardized numbers in, one per
 * series out.
 */
export interface WindowNetwork {
  /** Trains one step on a batch; returns its mean squared error. */
  train(batch: readonly Sample[]): number;
  predict(window: Float64Array): Float64Array;
}

export interface Sample {
  window: Float64Array;
  truth: Float64Array;
}

export interface WindowOptions {
  name: string;
  /** Number of previous slots that are inputs. */
  window: number;
  epochs: number;
  batch: number;
  create(inputs: { window: number; series: number }, random: Random): WindowNetwork;
}

/** Most windows of one fit, the newest. More take minutes and change little. */
const WINDOWS_MAX = 1500;
/** With fewer windows the network is not trained, and the last value replaces it. */
const WINDOWS_MIN = 30;

/**
 * Makes a forecaster of a network. Counts are standardized by the mean and deviation of the history of the fit, never
 * of later slots. The network's output is the difference between the next slot and the last, so that it starts from
 * persistence. Later steps use the forecasts of earlier ones.
 */
export function onWindows({ name, window, epochs, batch, create }: WindowOptions): PointForecaster {
  return {
    name,
    fit(values, seed) {
      const random = seededRandom(seed);
      const scales = values.map(scaleOf);
      const slots = values[0]?.length ?? 0;
      const from = Math.max(window, slots - WINDOWS_MAX);
      if (slots - from < WINDOWS_MIN)
        return (seen, horizon) => seen.map((s) => new Array<number>(horizon).fill(s.at(-1) ?? 0));
      const network = create({ window, series: values.length }, random);
      const standard = values.map((series, s) => series.map((value) => standardised(value, scales[s])));
      const samples: Sample[] = [];
      for (let at = from; at < slots; at++)
        samples.push({ window: windowAt(standard, at, window), truth: changeAt(standard, at) });
      for (let epoch = 0; epoch < epochs; epoch++) {
        shuffle(samples, random);
        for (let i = 0; i < samples.length; i += batch) network.train(samples.slice(i, i + batch));
      }
      return predictor(network, scales, window);
    },
  };
}

interface Scale {
  mean: number;
  deviation: number;
}

function predictor(network: WindowNetwork, scales: readonly Scale[], window: number): Predict {
  return (seen, horizon) => {
    const tail = seen.map((series, s) => series.slice(-window).map((value) => standardised(value, scales[s])));
    const found = seen.map((): number[] => []);
    for (let step = 0; step < horizon; step++) {
      const change = network.predict(windowAt(tail, tail[0]?.length ?? 0, window));
      for (const [s, series] of tail.entries()) {
        const next = (series.at(-1) ?? 0) + (change[s] ?? 0);
        series.push(next);
        const { mean, deviation } = scales[s] ?? { mean: 0, deviation: 1 };
        found[s]?.push(mean + deviation * next);
      }
    }
    return found;
  };
}

function scaleOf(series: readonly number[]): Scale {
  const mean = series.reduce((sum, value) => sum + value, 0) / Math.max(1, series.length);
  const variance = series.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(1, series.length);
  return { mean, deviation: Math.sqrt(variance) || 1 };
}

const standardised = (value: number, scale: Scale | undefined): number =>
  scale === undefined ? value : (value - scale.mean) / scale.deviation;

/** The slots before `at`; the first slot is repeated for earlier ones. */
function windowAt(series: readonly (readonly number[])[], at: number, window: number): Float64Array {
  const found = new Float64Array(window * series.length);
  for (let t = 0; t < window; t++)
    for (const [s, values] of series.entries())
      found[t * series.length + s] = values[Math.max(0, at - window + t)] ?? 0;
  return found;
}

const changeAt = (series: readonly (readonly number[])[], at: number): Float64Array =>
  Float64Array.from(series, (values) => (values[at] ?? 0) - (values[at - 1] ?? 0));

function shuffle<T>(items: T[], random: Random): void {
  for (let i = items.length - 1; i > 0; i--) {
    const other = Math.floor(random() * (i + 1));
    const [a, b] = [items[i], items[other]];
    if (a !== undefined && b !== undefined) [items[i], items[other]] = [b, a];
  }
}
