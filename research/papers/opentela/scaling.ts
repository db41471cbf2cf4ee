/** Whether tokens per second grow with the replicas that serve. */

/** A measured number of replicas, and what they could give. */
export interface ScalingStep {
  replicas: number;
  tokensPerS: number;
  mostTokensPerS: number;
}

const R_MIN = 0.9;
const SHARE_MIN = 0.85;

/**
 * `share`: the least share of what the replicas of a step could give. Pearson's r shows order and not proportion:
 * it is 1 if each replica gives half, and 0.99 if the tokens grow with the square root of the replicas.
 */
export function scalingOf(steps: readonly ScalingStep[]): { r: number; share: number; holds: boolean } {
  const r = correlation(steps.map(({ replicas, tokensPerS }) => [replicas, tokensPerS]));
  const share = Math.min(...steps.map(({ tokensPerS, mostTokensPerS }) => tokensPerS / mostTokensPerS));
  return { r, share, holds: r >= R_MIN && share >= SHARE_MIN };
}

/** Pearson's r. */
function correlation(points: readonly (readonly [number, number])[]): number {
  const mean = (of: (point: readonly [number, number]) => number) =>
    points.reduce((sum, point) => sum + of(point), 0) / points.length;
  const [x, y] = [mean(([a]) => a), mean(([, b]) => b)];
  const of = (f: (a: number, b: number) => number) => points.reduce((sum, [a, b]) => sum + f(a - x, b - y), 0);
  return of((a, b) => a * b) / Math.sqrt(of((a) => a * a) * of((_, b) => b * b));
}
