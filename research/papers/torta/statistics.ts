export interface Interval {
  mean: number;
  /** Half of the 95 % interval of the mean; 0 where there is one value. */
  half: number;
}

/** Student's t at 97.5 % by degrees of freedom 1 to 9; beyond it is nearly the normal's. */
const T975 = [12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];

/** Mean with its 95 % interval (Student's t). */
export function interval(values: readonly number[]): Interval {
  const n = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / Math.max(1, n);
  if (n < 2) return { mean, half: 0 };
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1);
  return { mean, half: ((T975[n - 2] ?? 1.96) * Math.sqrt(variance)) / Math.sqrt(n) };
}

/** By how much `ours` differs from `theirs` as a share of theirs, pair by pair of the same seed. */
export function change(ours: readonly number[], theirs: readonly number[]): Interval {
  return interval(ours.map((value, i) => value / (theirs[i] ?? Number.NaN) - 1));
}

export const intervalText = ({ mean, half }: Interval, digits = 2) =>
  `${mean.toFixed(digits)} ± ${half.toFixed(digits)}`;
