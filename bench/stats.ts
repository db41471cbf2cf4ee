/** Numbers of a benchmark: arrivals, quantiles, medians over repeats. */

/** Start times in ms of a Poisson stream of `perSecond` requests, `count` of them. */
export function arrivals(random: () => number, perSecond: number, count: number): number[] {
  const times: number[] = [];
  let at = 0;
  for (let n = 0; n < count; n++) {
    at += (-Math.log(1 - random()) * 1000) / perSecond;
    times.push(at);
  }
  return times;
}

/** The q-quantile (0 … 1) by the nearest rank; NaN without values. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] ?? Number.NaN;
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** A repeated measurement: its median and its range. */
export interface Repeated {
  median: number;
  least: number;
  most: number;
  repeats: number;
}

export function repeated(values: readonly number[]): Repeated {
  return { median: median(values), least: Math.min(...values), most: Math.max(...values), repeats: values.length };
}
