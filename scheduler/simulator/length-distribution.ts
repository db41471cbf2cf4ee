import { normal, type Random, seededRandom } from './random.ts';

/** Number of tokens of a prompt or a response. */
export type LengthDistribution =
  | { kind: 'constant'; mean: number }
  /** The drawn number is rounded down and is at least `min`, as in the benchmark of OpenTela's paper. */
  | { kind: 'normal'; mean: number; sd: number; min: number }
  | { kind: 'lognormal'; mean: number; sd: number }
  /** Whole numbers from `low` to `high`, all equally likely. */
  | { kind: 'uniform'; low: number; high: number }
  | { kind: 'samples'; values: readonly number[] };

/** Longest length that is drawn: bounds the tail of a wide distribution. */
export const LENGTH_MAX = 10_000_000;

export function drawLength(lengths: LengthDistribution, random: Random): number {
  return Math.min(LENGTH_MAX, drawn(lengths, random));
}

function drawn(lengths: LengthDistribution, random: Random): number {
  switch (lengths.kind) {
    case 'constant':
      return Math.max(1, Math.round(lengths.mean));
    case 'normal':
      return Math.max(lengths.min, 1, Math.trunc(lengths.mean + lengths.sd * normal(random)));
    case 'lognormal': {
      const variance = Math.log(1 + (lengths.sd / lengths.mean) ** 2);
      return Math.max(
        1,
        Math.round(Math.exp(Math.log(lengths.mean) - variance / 2 + Math.sqrt(variance) * normal(random))),
      );
    }
    case 'uniform':
      return Math.max(1, lengths.low + Math.floor(random() * (lengths.high - lengths.low + 1)));
    case 'samples':
      return Math.max(1, lengths.values[Math.floor(random() * lengths.values.length)] ?? 1);
  }
}

/** Mean of the numbers of tokens that are drawn, with their bounds. */
export function meanLength(lengths: LengthDistribution): number {
  switch (lengths.kind) {
    case 'constant':
    case 'lognormal':
      return lengths.mean;
    case 'normal':
      return cutNormalMean(lengths.mean, lengths.sd, Math.max(1, lengths.min));
    case 'uniform':
      return (lengths.low + lengths.high) / 2;
    case 'samples':
      return lengths.values.reduce((sum, value) => sum + value, 0) / Math.max(1, lengths.values.length);
  }
}

/** Mean and mean square of the drawn lengths. They are sampled if there is no short formula. */
export function moments(lengths: LengthDistribution): { mean: number; square: number } {
  switch (lengths.kind) {
    case 'constant':
      return { mean: lengths.mean, square: lengths.mean ** 2 };
    case 'lognormal':
      return { mean: lengths.mean, square: lengths.mean ** 2 + lengths.sd ** 2 };
    default: {
      const random = seededRandom(7);
      let [mean, square] = [0, 0];
      for (let i = 0; i < MOMENT_DRAWS; i++) {
        const value = drawLength(lengths, random);
        mean += value / MOMENT_DRAWS;
        square += value ** 2 / MOMENT_DRAWS;
      }
      return { mean, square };
    }
  }
}

/** Number of draws that estimates the moments to half a percent. */
const MOMENT_DRAWS = 20_000;

/** E max(min, X) for a normal X, minus the half token by which rounding down lowers values above `min` on average. */
function cutNormalMean(mean: number, sd: number, min: number): number {
  if (sd === 0) return Math.max(min, mean);
  const z = (min - mean) / sd;
  const below = normalCdf(z);
  const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
  return min * below + (mean - 0.5) * (1 - below) + sd * density;
}

/** Distribution function of the standard normal: Abramowitz and Stegun 7.1.26, error below 1.5e-7. */
function normalCdf(z: number): number {
  const x = Math.abs(z) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * x);
  const poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const erf = 1 - poly * Math.exp(-x * x);
  return z >= 0 ? (1 + erf) / 2 : (1 - erf) / 2;
}
