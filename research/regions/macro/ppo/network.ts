import { FeedForward } from '../../../../scheduler/regions/learned/feed-forward.ts';
import { normal, type Random } from '../../../../scheduler/simulator/random.ts';
import { Adam } from '../../../forecast/adam.ts';

/** A network that learns. */
export class Network extends FeedForward {
  readonly #gradient: Float64Array;
  readonly #adam: Adam;

  constructor(sizes: readonly number[], random: Random, rate: number) {
    super(sizes);
    for (let layer = 1; layer < sizes.length; layer++) {
      const inputs = sizes[layer - 1] ?? 1;
      // A small last layer: the first policy is nearly uniform in every state.
      const spread = (layer === sizes.length - 1 ? 0.1 : 1) / Math.sqrt(inputs);
      const start = this.starts[layer - 1] ?? 0;
      for (let i = 0; i < (sizes[layer] ?? 0) * (inputs + 1); i++)
        this.parameters[start + i] = (i + 1) % (inputs + 1) === 0 ? 0 : normal(random) * spread;
    }
    this.#gradient = new Float64Array(this.parameters.length);
    this.#adam = new Adam(this.parameters.length, rate);
  }

  /** Adds the gradients of the parameters for the last `forward`, given those of its outputs. */
  backward(outputs: Float64Array): void {
    let down = outputs;
    for (let layer = this.sizes.length - 1; layer >= 1; layer--) {
      const from = this.values[layer - 1] ?? new Float64Array();
      const next = new Float64Array(from.length);
      let at = this.starts[layer - 1] ?? 0;
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
