import type { Random } from '../../../../scheduler/simulator/random.ts';
import { densityGradient, logDensity, sampleBeta } from './beta.ts';
import { Network } from './network.ts';

/** Units of the two hidden layers; few, because policies are files in the repository. */
const HIDDEN = 32;
const RATE = 1e-3;
/** Lower bound of α and β of each entry: densities with one peak. */
const SHAPE_LEAST = 1;

/**
 * State: use, backlog, servers and expected share of each region, and the last shares. Latencies are constant and so
 * omitted.
 */
export const stateSize = (regions: number): number => 4 * regions + regions ** 2;

/** A stochastic policy over shares: one Beta distribution per origin and region, with normalized rows. */
export class BetaPolicy {
  readonly regions: number;
  readonly network: Network;

  constructor(regions: number, random: Random) {
    this.regions = regions;
    this.network = new Network([stateSize(regions), HIDDEN, HIDDEN, 2 * regions ** 2], random, RATE);
  }

  /** α and β by entry: `[α₀, β₀, α₁, …]`. */
  shapes(state: Float64Array): Float64Array {
    return this.network.forward(state).map((value) => SHAPE_LEAST + softplus(value));
  }

  /** Raw entries, in (0, 1). */
  sample(shapes: Float64Array, random: Random): Float64Array {
    return new Float64Array(this.regions ** 2).map((_, e) =>
      sampleBeta(random, shapes[2 * e] ?? 1, shapes[2 * e + 1] ?? 1),
    );
  }

  mean(shapes: Float64Array): Float64Array {
    return new Float64Array(this.regions ** 2).map((_, e) => {
      const [alpha, beta] = [shapes[2 * e] ?? 1, shapes[2 * e + 1] ?? 1];
      return alpha / (alpha + beta);
    });
  }

  logProbability(shapes: Float64Array, raw: Float64Array): number {
    let sum = 0;
    for (const [e, x] of raw.entries()) sum += logDensity(x, shapes[2 * e] ?? 1, shapes[2 * e + 1] ?? 1);
    return sum;
  }

  /**
   * Adds to the network's gradients those of weight·log π(raw) and of pull·‖normalized mean − target‖², for the last
   * `shapes(state)`; both are minimized.
   */
  addGradient(shapes: Float64Array, raw: Float64Array, weight: number, pull: number, target: Float64Array): void {
    const outputs = new Float64Array(shapes.length);
    const byMean = this.#pullGradient(shapes, pull, target);
    for (const [e, x] of raw.entries()) {
      const [alpha, beta] = [shapes[2 * e] ?? 1, shapes[2 * e + 1] ?? 1];
      const [byAlpha, byBeta] = densityGradient(x, alpha, beta);
      const [total, m] = [(alpha + beta) ** 2, byMean[e] ?? 0];
      // softplus' = 1 − exp(−softplus).
      outputs[2 * e] = (weight * byAlpha + (m * beta) / total) * (1 - Math.exp(SHAPE_LEAST - alpha));
      outputs[2 * e + 1] = (weight * byBeta - (m * alpha) / total) * (1 - Math.exp(SHAPE_LEAST - beta));
    }
    this.network.backward(outputs);
  }

  /** Derivatives of pull·‖A − target‖² by the means before their rows are normalized. */
  #pullGradient(shapes: Float64Array, pull: number, target: Float64Array): Float64Array {
    const found = new Float64Array(target.length);
    if (pull === 0) return found;
    const means = this.mean(shapes);
    const shares = normaliseRows(means, this.regions);
    for (let row = 0; row < this.regions; row++) {
      const first = row * this.regions;
      let [sum, inner] = [0, 0];
      for (let at = first; at < first + this.regions; at++) {
        sum += means[at] ?? 0;
        inner += ((shares[at] ?? 0) - (target[at] ?? 0)) * (shares[at] ?? 0);
      }
      for (let at = first; at < first + this.regions; at++)
        found[at] = (2 * pull * ((shares[at] ?? 0) - (target[at] ?? 0) - inner)) / sum;
    }
    return found;
  }
}

const softplus = (x: number) => (x > 30 ? x : Math.log1p(Math.exp(x)));

export function normaliseRows(values: Float64Array, regions: number): Float64Array {
  const shares = new Float64Array(values.length);
  for (let row = 0; row < regions; row++) {
    const first = row * regions;
    let sum = 0;
    for (let at = first; at < first + regions; at++) sum += values[at] ?? 0;
    for (let at = first; at < first + regions; at++) shares[at] = sum > 0 ? (values[at] ?? 0) / sum : 1 / regions;
  }
  return shares;
}
