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
  /** All parameters, in place: training changes them, and writing restores earlier ones. */
  readonly parameters: Float64Array;
}

export interface Sample {
  window: Float64Array;
  truth: Float64Array;
}

/** Mean squared errors of one epoch, in standardized counts. */
export interface Epoch {
  training: number;
  /** On the newest windows, which the epoch did not train on. */
  validation: number;
}

/** Training until the error on the newest windows no longer falls. */
export interface Convergence {
  /** Ends the training after this many epochs in a row without a lower validation error. */
  patience: number;
  /** Called once per fit. */
  trained?: (curve: readonly Epoch[]) => void;
}

export interface WindowOptions {
  name: string;
  /** Number of previous slots that are inputs. */
  window: number;
  /** With `until`, the most epochs. */
  epochs: number;
  /** Absent: all epochs, on all windows. */
  until?: Convergence | undefined;
  batch: number;
  create(inputs: { window: number; series: number }, random: Random): WindowNetwork;
}

/** Most windows of one fit, the newest. */
const WINDOWS_MAX = 3000;
/** With fewer windows the network is not trained, and the last value replaces it. */
const WINDOWS_MIN = 30;
/** Newest windows, as a share, on which convergence is tested. */
const VALIDATION_SHARE = 0.1;

/**
 * Makes a forecaster of a network. Counts are standardized by the mean and deviation of the history of the fit, never
 * of later slots. The network's output is the difference between the next slot and the last, so that it starts from
 * persistence. Later steps use the forecasts of earlier ones.
 */
export function onWindows({ name, window, epochs, until, batch, create }: WindowOptions): PointForecaster {
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
      if (until !== undefined) trainUntil(network, samples, { epochs, batch, until, random });
      else for (let epoch = 0; epoch < epochs; epoch++) trainEpoch(network, samples, batch, random);
      return predictor(network, scales, window);
    },
  };
}

/** Returns the mean squared error during the epoch. */
function trainEpoch(network: WindowNetwork, samples: Sample[], batch: number, random: Random): number {
  shuffle(samples, random);
  let sum = 0;
  for (let i = 0; i < samples.length; i += batch) {
    const part = samples.slice(i, i + batch);
    sum += network.train(part) * part.length;
  }
  return sum / samples.length;
}

/** Trains until the validation error is flat, and keeps the parameters of its lowest point. */
function trainUntil(
  network: WindowNetwork,
  samples: Sample[],
  { epochs, batch, until, random }: { epochs: number; batch: number; until: Convergence; random: Random },
): void {
  const held = samples.splice(Math.ceil(samples.length * (1 - VALIDATION_SHARE)));
  const curve: Epoch[] = [];
  let best = { at: -1, error: validationError(network, held), parameters: network.parameters.slice() };
  while (curve.length < epochs && curve.length - best.at <= until.patience) {
    const training = trainEpoch(network, samples, batch, random);
    const validation = validationError(network, held);
    if (validation < best.error) best = { at: curve.length, error: validation, parameters: network.parameters.slice() };
    curve.push({ training, validation });
  }
  network.parameters.set(best.parameters);
  until.trained?.(curve);
}

function validationError(network: WindowNetwork, held: readonly Sample[]): number {
  let [sum, count] = [0, 0];
  for (const { window, truth } of held)
    for (const [o, value] of network.predict(window).entries()) {
      sum += (value - (truth[o] ?? 0)) ** 2;
      count++;
    }
  return sum / count;
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
