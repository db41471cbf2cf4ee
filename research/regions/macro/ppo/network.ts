import { normal, type Random } from '../../../../scheduler/simulator/random.ts';
import { Adam } from '../../../forecast/adam.ts';

/**
 * Layers of tanh units; the last one is linear. Parameters in one vector: by layer, then by output, inputs before the
 * constant.
 */
export class Network {
  readonly sizes: readonly number[];
  readonly parameters: Float64Array;
  readonly #gradient: Float64Array;
  readonly #adam: Adam;
  readonly #values: Float64Array[];
  readonly #starts: number[] = [];

  constructor(sizes: readonly number[], random: Random, rate: number) {
    this.sizes = sizes;
    let size = 0;
    for (let layer = 1; layer < sizes.length; layer++) {
      this.#starts.push(size);
      size += (sizes[layer] ?? 0) * ((sizes[layer - 1] ?? 0) + 1);
    }
    this.parameters = new Float64Array(size);
    for (let layer = 1; layer < sizes.length; layer++) {
      const inputs = sizes[layer - 1] ?? 1;
      // A small last layer: the first policy is nearly uniform in every state.
      const spread = (layer === sizes.length - 1 ? 0.1 : 1) / Math.sqrt(inputs);
      const start = this.#starts[layer - 1] ?? 0;
      for (let i = 0; i < (sizes[layer] ?? 0) * (inputs + 1); i++)
        this.parameters[start + i] = (i + 1) % (inputs + 1) === 0 ? 0 : normal(random) * spread;
    }
    this.#gradient = new Float64Array(size);
    this.#adam = new Adam(size, rate);
    this.#values = sizes.map((units) => new Float64Array(units));
  }

  /** The next call overwrites the returned array. */
  forward(input: Float64Array): Float64Array {
    this.#values[0]?.set(input);
    const last = this.sizes.length - 1;
    for (let layer = 1; layer <= last; layer++) {
      const from = this.#values[layer - 1] ?? new Float64Array();
      const to = this.#values[layer] ?? new Float64Array();
      let at = this.#starts[layer - 1] ?? 0;
      for (let o = 0; o < to.length; o++) {
        let sum = 0;
        for (let i = 0; i < from.length; i++) sum += (this.parameters[at++] ?? 0) * (from[i] ?? 0);
        sum += this.parameters[at++] ?? 0;
        to[o] = layer === last ? sum : Math.tanh(sum);
      }
    }
    return this.#values[last] ?? new Float64Array();
  }

  /** Adds the gradients of the parameters for the last `forward`, given those of its outputs. */
  backward(outputs: Float64Array): void {
    let down = outputs;
    for (let layer = this.sizes.length - 1; layer >= 1; layer--) {
      const from = this.#values[layer - 1] ?? new Float64Array();
      const next = new Float64Array(from.length);
      let at = this.#starts[layer - 1] ?? 0;
      for (let o = 0; o < down.length; o++) {
        const d = down[o] ?? 0;
        for (let i = 0; i < from.length; i++, at++) {
          this.#gradient[at] = (this.#gradient[at] ?? 0) + d * (from[i] ?? 0);
          next[i] = (next[i] ?? 0) + d * (this.parameters[at] ?? 0);
        }
        this.#gradient[at] = (this.#gradient[at] ?? 0) + d;
        at++;
      }
      if (layer > 1) for (let i = 0; i < from.length; i++) next[i] = (next[i] ?? 0) * (1 - (from[i] ?? 0) ** 2);
      down = next;
    }
  }

  /** One step with the added gradients; gradients above `norm` are shortened. */
  step(norm: number): void {
    let square = 0;
    for (const g of this.#gradient) square += g * g;
    const scale = Math.min(1, norm / Math.sqrt(square + 1e-12));
    if (scale < 1) for (let i = 0; i < this.#gradient.length; i++) this.#gradient[i] = (this.#gradient[i] ?? 0) * scale;
    this.#adam.step(this.parameters, this.#gradient);
  }
}
