import { FEATURES } from './entry-state.ts';
import { FeedForward } from './feed-forward.ts';

const HIDDEN = 24;
export const LAYERS: readonly number[] = [FEATURES, HIDDEN, HIDDEN, 2];
/** A share of the QP is multiplied or divided by at most this factor before its row is normalized. */
const FACTOR_MAX = 3;
export const SCALE = Math.log(FACTOR_MAX);
/** Lower bound of α and β: densities with one peak. Both start at SHAPE_START: a deviation of 0.12. */
export const SHAPE_LEAST = 1;
const SHAPE_START = 8;
/** Input at which softplus is SHAPE_START − SHAPE_LEAST. */
const OFFSET = Math.log(Math.expm1(SHAPE_START - SHAPE_LEAST));

/**
 * A policy that multiplies the QP's shares: one Beta distribution per origin and region, with α and β by one network
 * that reads the state of this entry. Its mean action is what plans.
 */
export class LearnedPolicy<N extends FeedForward = FeedForward> {
  readonly network: N;

  constructor(network: N) {
    this.network = network;
  }

  /** α and β of one entry. */
  shapes(state: Float64Array, entry: number): [number, number] {
    const found = this.network.forward(state.subarray(entry * FEATURES, (entry + 1) * FEATURES));
    return [SHAPE_LEAST + softplus(OFFSET + (found[0] ?? 0)), SHAPE_LEAST + softplus(OFFSET + (found[1] ?? 0))];
  }

  /** α and β of all entries: `[α₀, β₀, α₁, …]`. */
  allShapes(state: Float64Array): Float64Array {
    const shapes = new Float64Array((2 * state.length) / FEATURES);
    for (let entry = 0; 2 * entry < shapes.length; entry++) shapes.set(this.shapes(state, entry), 2 * entry);
    return shapes;
  }
}

/** A policy with these parameters. */
export function learnedPolicy(parameters: Float64Array): LearnedPolicy {
  const network = new FeedForward(LAYERS);
  network.parameters.set(parameters);
  return new LearnedPolicy(network);
}

const softplus = (x: number) => (x > 30 ? x : Math.log1p(Math.exp(x)));

export const means = (shapes: Float64Array): Float64Array =>
  Float64Array.from({ length: shapes.length / 2 }, (_, entry) => {
    const [alpha, beta] = [shapes[2 * entry] ?? 1, shapes[2 * entry + 1] ?? 1];
    return alpha / (alpha + beta);
  });

/**
 * The QP's shares, times exp(SCALE·(2x − 1)) of each origin and region, with normalized rows. `rowsOfOrigin`: rows of
 * `planned` for each origin, such as one for each type of task.
 */
export function shapedShares(
  planned: Float64Array,
  x: Float64Array,
  regions: number,
  rowsOfOrigin: number,
): Float64Array {
  const shares = new Float64Array(planned.length);
  for (let row = 0; row * regions < planned.length; row++) {
    const first = Math.floor(row / rowsOfOrigin) * regions;
    let sum = 0;
    for (let j = 0; j < regions; j++) {
      const value = (planned[row * regions + j] ?? 0) * Math.exp(SCALE * (2 * (x[first + j] ?? 0.5) - 1));
      shares[row * regions + j] = value;
      sum += value;
    }
    for (let at = row * regions; at < (row + 1) * regions; at++)
      shares[at] = sum > 0 ? (shares[at] ?? 0) / sum : (planned[at] ?? 0);
  }
  return shares;
}
