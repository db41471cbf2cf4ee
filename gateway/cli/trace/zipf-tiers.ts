/**
 * Fits tiers of Zipf's law to a ranking: within a tier, the value at rank r is `scale / r^alpha`. The tiers are the split
 * with the smallest squared error of the logarithms. Pure.
 */

export interface ZipfTier {
  /** First and last rank of the tier, from 1 on. */
  from: number;
  to: number;
  alpha: number;
  scale: number;
}

/** A line through one point has no slope. */
const TIER_RANKS_MIN = 2;

/** Least gain of a further tier: squared differences of natural logarithms. Smaller ones are rounding errors. */
const BETTER = 1e-9;

/** @param values positive, in descending order; only as many as a chart shows, because every split is tried */
export function zipfTiers(values: readonly number[]): { tiers: ZipfTier[]; r2: number } {
  let best: { tiers: ZipfTier[]; error: number } | undefined;
  for (const ends of splits(values.length)) {
    const fits = ends.map((to, n) => fitTier(values, (ends[n - 1] ?? 0) + 1, to));
    const error = fits.reduce((sum, fit) => sum + fit.error, 0);
    // A split with more tiers is kept only if it fits better.
    if (best === undefined || error < best.error - BETTER) best = { tiers: fits.map(({ tier }) => tier), error };
  }
  const logs = values.map(Math.log);
  const mean = logs.reduce((sum, one) => sum + one, 0) / Math.max(1, logs.length);
  const total = logs.reduce((sum, one) => sum + (one - mean) ** 2, 0);
  return { tiers: best?.tiers ?? [], r2: best === undefined || total === 0 ? 0 : 1 - best.error / total };
}

/** Yields the last ranks of the tiers of every split into one to three tiers, those with fewer tiers first. */
function* splits(count: number): Generator<number[]> {
  if (count < TIER_RANKS_MIN) return;
  yield [count];
  for (let a = TIER_RANKS_MIN; a <= count - TIER_RANKS_MIN; a++) yield [a, count];
  for (let a = TIER_RANKS_MIN; a <= count - 2 * TIER_RANKS_MIN; a++)
    for (let b = a + TIER_RANKS_MIN; b <= count - TIER_RANKS_MIN; b++) yield [a, b, count];
}

/** Fits a line to the logarithms of ranks and values by least squares. */
function fitTier(values: readonly number[], from: number, to: number): { tier: ZipfTier; error: number } {
  const points = values.slice(from - 1, to).map((value, n) => [Math.log(from + n), Math.log(value)] as const);
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / points.length;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / points.length;
  const [xy, xx] = points.reduce(([a, b], [x, y]) => [a + (x - meanX) * (y - meanY), b + (x - meanX) ** 2] as const, [
    0, 0,
  ] as readonly [number, number]);
  const slope = xy / xx;
  const error = points.reduce((sum, [x, y]) => sum + (y - meanY - slope * (x - meanX)) ** 2, 0);
  return { tier: { from, to, alpha: -slope, scale: Math.exp(meanY - slope * meanX) }, error };
}
