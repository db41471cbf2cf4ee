/** Statistics of a duration in seconds; NaN if there are no values, because 0 s would be wrong. */
export interface Distribution {
  mean: number;
  p50: number;
  p90: number;
  p95: number;
  p99: number;
  max: number;
}

export function distribution(values: Float64Array): Distribution {
  const sorted = values.slice().sort();
  const at = (q: number) => sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)] ?? Number.NaN;
  let sum = 0;
  for (const value of values) sum += value;
  return { mean: sum / values.length, p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), max: at(1) };
}
