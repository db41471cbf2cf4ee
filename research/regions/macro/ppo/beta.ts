import { gamma, type Random } from '../../../../scheduler/simulator/random.ts';

/** Keeps samples away from 0 and 1, because the density there is infinite or zero. */
const EDGE = 1e-4;

export function sampleBeta(random: Random, alpha: number, beta: number): number {
  const a = gamma(random, alpha, 1);
  const b = gamma(random, beta, 1);
  return Math.min(1 - EDGE, Math.max(EDGE, a / (a + b)));
}

export function logDensity(x: number, alpha: number, beta: number): number {
  return (
    (alpha - 1) * Math.log(x) + (beta - 1) * Math.log(1 - x) + logGamma(alpha + beta) - logGamma(alpha) - logGamma(beta)
  );
}

/** Derivatives of `logDensity` by α and β. */
export function densityGradient(x: number, alpha: number, beta: number): [number, number] {
  const both = digamma(alpha + beta);
  return [Math.log(x) + both - digamma(alpha), Math.log(1 - x) + both - digamma(beta)];
}

/** Stirling's series after shifting above 8; for positive x. */
export function logGamma(x: number): number {
  let [shifted, product] = [x, 1];
  while (shifted < 8) product *= shifted++;
  const inverse = 1 / shifted;
  const square = inverse * inverse;
  const series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)));
  return (shifted - 0.5) * Math.log(shifted) - shifted + 0.5 * Math.log(2 * Math.PI) + series - Math.log(product);
}

export function digamma(x: number): number {
  let [shifted, sum] = [x, 0];
  while (shifted < 8) sum -= 1 / shifted++;
  const inverse = 1 / shifted;
  const square = inverse * inverse;
  return sum + Math.log(shifted) - inverse / 2 - square * (1 / 12 - square * (1 / 120 - square / 252));
}
