/** Maximum points of a distribution. */
const POINTS_MAX = 200;

/** Returns the cumulative distribution, with at most as many points as a chart shows. `sorted`: ascending. */
export function cdf(sorted: readonly number[]): [number, number][] {
  const every = Math.max(1, Math.floor(sorted.length / POINTS_MAX));
  return sorted.flatMap((x, n): [number, number][] =>
    n % every === 0 || n === sorted.length - 1 ? [[x, (n + 1) / sorted.length]] : [],
  );
}
