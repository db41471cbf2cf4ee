import * as learned from '../../../../scheduler/regions/learned/learned-policy.ts';
import { type Random, seededRandom } from '../../../../scheduler/simulator/random.ts';
import { TASK_TYPES } from '../../world/tasks.ts';
import { densityGradient, logDensity, sampleBeta } from './beta.ts';
import { Network } from './network.ts';

const { LAYERS, SCALE, SHAPE_LEAST } = learned;
const TYPES = TASK_TYPES.length;
const RATE = 4e-3;

/**
 * The learned policy with what training needs. The last layer starts at 0, so that the mean action is the QP's plan
 * until something is learned: the QP's behavior is cloned exactly.
 */
export class ResidualPolicy extends learned.LearnedPolicy<Network> {
  constructor(random: Random = seededRandom(1)) {
    super(new Network(LAYERS, random, RATE));
    const last = (LAYERS.at(-1) ?? 0) * ((LAYERS.at(-2) ?? 0) + 1);
    this.network.parameters.fill(0, this.network.parameters.length - last);
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

export const samples = (shapes: Float64Array, random: Random): Float64Array =>
  Float64Array.from({ length: shapes.length / 2 }, (_, entry) =>
    sampleBeta(random, shapes[2 * entry] ?? 1, shapes[2 * entry + 1] ?? 1),
  );

export const logDensities = (shapes: Float64Array, x: Float64Array): Float64Array =>
  x.map((value, entry) => logDensity(value, shapes[2 * entry] ?? 1, shapes[2 * entry + 1] ?? 1));

/** The QP's shares, by origin and type, with the factors of `x` by origin and region. */
export const shapedShares = (planned: Float64Array, x: Float64Array, regions: number): Float64Array =>
  learned.shapedShares(planned, x, regions, TYPES);

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
