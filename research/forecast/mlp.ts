import { calibrated } from '../../scheduler/forecast/conformal-intervals.ts';
import type { Forecaster } from '../../scheduler/forecast/types.ts';
import { normal, type Random } from '../../scheduler/simulator/random.ts';
import { Adam } from './adam.ts';
import { onWindows, type Sample, type WindowNetwork } from './windows.ts';

export interface MlpOptions {
  window?: number;
  /** Units of the hidden layers: 512 and 256 in TORTA. */
  hidden?: readonly number[];
  epochs?: number;
}

const RATE = 0.001;
const BATCH = 32;
/** Weight of the parameters' squares in the loss. */
const DECAY = 1e-5;

/**
 * A multi-layer perceptron over the last slots of all series together: mean squared error with a penalty on large
 * weights.
 */
export function mlp({ window = 20, hidden = [512, 256], epochs = 6 }: MlpOptions = {}): Forecaster {
  return calibrated(
    onWindows({
      name: `MLP ${hidden.join('-')}`,
      window,
      epochs,
      batch: BATCH,
      create: ({ series }, random) => new Mlp([window * series, ...hidden, series], random),
    }),
  );
}

/**
 * Layers of rectified units; the last one is linear. Parameters in one vector: by layer, then by output, inputs before
 * the constant.
 */
class Mlp implements WindowNetwork {
  readonly #sizes: readonly number[];
  readonly #starts: number[] = [];
  readonly parameters: Float64Array;
  readonly #gradient: Float64Array;
  readonly #adam: Adam;
  readonly #values: Float64Array[];

  /** `sizes`: units of each layer, inputs first. */
  constructor(sizes: readonly number[], random: Random, rate = RATE) {
    this.#sizes = sizes;
    let size = 0;
    for (let layer = 1; layer < sizes.length; layer++) {
      this.#starts.push(size);
      size += (sizes[layer] ?? 0) * ((sizes[layer - 1] ?? 0) + 1);
    }
    this.parameters = new Float64Array(size);
    for (let layer = 1; layer < sizes.length - 1; layer++) {
      const [inputs, start] = [sizes[layer - 1] ?? 1, this.#starts[layer - 1] ?? 0];
      const spread = Math.sqrt(2 / inputs);
      for (let i = 0; i < (sizes[layer] ?? 0) * (inputs + 1); i++)
        this.parameters[start + i] = (i + 1) % (inputs + 1) === 0 ? 0 : normal(random) * spread;
    }
    // The last layer begins at zero, so that it forecasts no change before it has learned.
    this.#gradient = new Float64Array(size);
    this.#adam = new Adam(size, rate);
    this.#values = sizes.map((units) => new Float64Array(units));
  }

  predict(window: Float64Array): Float64Array {
    this.#values[0]?.set(window);
    for (let layer = 1; layer < this.#sizes.length; layer++) {
      const [from, to] = [this.#values[layer - 1], this.#values[layer]];
      if (from === undefined || to === undefined) continue;
      const last = layer === this.#sizes.length - 1;
      let at = this.#starts[layer - 1] ?? 0;
      for (let o = 0; o < to.length; o++) {
        let sum = 0;
        for (let i = 0; i < from.length; i++) sum += (this.parameters[at++] as number) * (from[i] as number);
        sum += this.parameters[at++] as number;
        to[o] = last ? sum : Math.max(0, sum);
      }
    }
    return Float64Array.from(this.#values.at(-1) ?? []);
  }

  train(batch: readonly Sample[]): number {
    let error = 0;
    for (const { window, truth } of batch) {
      const found = this.predict(window);
      let down: Float64Array = found.map((value, o) => {
        const off = value - (truth[o] ?? 0);
        error += off * off;
        return (2 * off) / (batch.length * found.length);
      });
      for (let layer = this.#sizes.length - 1; layer >= 1; layer--) down = this.#backward(layer, down);
    }
    for (let i = 0; i < this.#gradient.length; i++)
      this.#gradient[i] = (this.#gradient[i] as number) + 2 * DECAY * (this.parameters[i] as number);
    this.#adam.step(this.parameters, this.#gradient);
    return error / (batch.length * (this.#sizes.at(-1) ?? 1));
  }

  /** Adds the gradients of one layer's parameters; returns those of its inputs. */
  #backward(layer: number, down: Float64Array): Float64Array {
    const from = this.#values[layer - 1] ?? new Float64Array();
    const next = new Float64Array(from.length);
    let at = this.#starts[layer - 1] ?? 0;
    for (let o = 0; o < down.length; o++) {
      const d = down[o] as number;
      if (d === 0) {
        at += from.length + 1;
        continue;
      }
      for (let i = 0; i < from.length; i++, at++) {
        this.#gradient[at] = (this.#gradient[at] as number) + d * (from[i] as number);
        next[i] = (next[i] as number) + d * (this.parameters[at] as number);
      }
      this.#gradient[at] = (this.#gradient[at] as number) + d;
      at++;
    }
    // The units of hidden layers are rectified: a unit with output zero passes no gradient.
    if (layer > 1) for (let i = 0; i < from.length; i++) if ((from[i] as number) <= 0) next[i] = 0;
    return next;
  }
}
