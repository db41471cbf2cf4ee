import { type Random, seededRandom } from '../../../../scheduler/simulator/random.ts';
import { TASK_TYPES } from '../../world/tasks.ts';
import { densityGradient, logDensity, sampleBeta } from './beta.ts';
import { FEATURES } from './features.ts';
import { Network } from './network.ts';

const TYPES = TASK_TYPES.length;
const HIDDEN = 24;
const RATE = 4e-3;
/** A share of the QP is multiplied or divided by at most this factor before its row is normalized. */
const FACTOR_MAX = 3;
const SCALE = Math.log(FACTOR_MAX);
/** Lower bound of α and β: densities with one peak. Both start at SHAPE_START: a deviation of 0.12. */
const [SHAPE_LEAST, SHAPE_START] = [1, 8];
/** Input at which softplus is SHAPE_START − SHAPE_LEAST. */
const OFFSET = Math.log(Math.expm1(SHAPE_START - SHAPE_LEAST));

/**
 * A stochastic policy that multiplies the QP's shares: one Beta distribution per origin and region, with α and β by one
 * network that reads the state of this entry. The last layer starts at 0, so that the mean action is the QP's plan
 * until something is learned: the QP's behavior is cloned exactly.
 */
export class ResidualPolicy {
  readonly network: Network;

  constructor(random: Random = seededRandom(1)) {
    this.network = new Network([FEATURES, HIDDEN, HIDDEN, 2], random, RATE);
    this.network.parameters.fill(0, this.network.parameters.length - 2 * (HIDDEN + 1));
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

  /**
   * Adds to the network's gradient that of `byDensity`·log π(x) + `byMean`·E[x], for the last `shapes`, which
   * returned `alpha` and `beta`; the sum is minimized.
   */
  addGradient(alpha: number, beta: number, x: number, byDensity: number, byMean: number): void {
    const [a, b] = byDensity === 0 ? [0, 0] : densityGradient(x, alpha, beta);
    const total = (alpha + beta) ** 2;
    // softplus' = 1 − exp(−softplus).
    this.network.backward(
      Float64Array.of(
        (byDensity * a + (byMean * beta) / total) * (1 - Math.exp(SHAPE_LEAST - alpha)),
        (byDensity * b - (byMean * alpha) / total) * (1 - Math.exp(SHAPE_LEAST - beta)),
      ),
    );
  }
}

const softplus = (x: number) => (x > 30 ? x : Math.log1p(Math.exp(x)));

export const means = (shapes: Float64Array): Float64Array =>
  Float64Array.from({ length: shapes.length / 2 }, (_, entry) => {
    const [alpha, beta] = [shapes[2 * entry] ?? 1, shapes[2 * entry + 1] ?? 1];
    return alpha / (alpha + beta);
  });

export const samples = (shapes: Float64Array, random: Random): Float64Array =>
  Float64Array.from({ length: shapes.length / 2 }, (_, entry) =>
    sampleBeta(random, shapes[2 * entry] ?? 1, shapes[2 * entry + 1] ?? 1),
  );

export const logDensities = (shapes: Float64Array, x: Float64Array): Float64Array =>
  x.map((value, entry) => logDensity(value, shapes[2 * entry] ?? 1, shapes[2 * entry + 1] ?? 1));

/** The QP's shares, by origin and type, times exp(SCALE·(2x − 1)) of each origin and region, with normalized rows. */
export function shapedShares(planned: Float64Array, x: Float64Array, regions: number): Float64Array {
  const shares = new Float64Array(planned.length);
  for (let row = 0; row * regions < planned.length; row++) {
    const first = Math.floor(row / TYPES) * regions;
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

/** Derivative of the mean over types of ‖A − target‖², of each row, by x; `shares`: A = `shapedShares(…, x)`. */
export function distanceGradient(shares: Float64Array, target: Float64Array, regions: number): Float64Array {
  const found = new Float64Array((shares.length / TYPES) | 0);
  for (let row = 0; row * regions < shares.length; row++) {
    const at = row * regions;
    let inner = 0;
    for (let j = 0; j < regions; j++) inner += (shares[at + j] ?? 0) * ((shares[at + j] ?? 0) - (target[at + j] ?? 0));
    for (let j = 0; j < regions; j++) {
      const share = shares[at + j] ?? 0;
      const entry = Math.floor(row / TYPES) * regions + j;
      found[entry] = (found[entry] ?? 0) + ((4 * SCALE) / TYPES) * share * (share - (target[at + j] ?? 0) - inner);
    }
  }
  return found;
}

export function distance2(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += ((a[i] ?? 0) - (b[i] ?? 0)) ** 2;
  return sum;
}
