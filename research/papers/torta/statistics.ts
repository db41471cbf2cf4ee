export interface Interval {
  mean: number;
  /** Half of the width of the mean's 95 % interval; 0 for a single value. */
  half: number;
}

/** Student's t at 97.5 % by degrees of freedom 1 to 9; above, it is close to the normal distribution's. */
const T975 = [12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];

/** Mean with its 95 % interval (Student's t). */
export function interval(values: readonly number[]): Interval {
  const n = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / Math.max(1, n);
  if (n < 2) return { mean, half: 0 };
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1);
  return { mean, half: ((T975[n - 2] ?? 1.96) * Math.sqrt(variance)) / Math.sqrt(n) };
}

/** Relative difference of `ours` from `theirs`, over pairs with the same seed. */
export function change(ours: readonly number[], theirs: readonly number[]): Interval {
  return interval(ours.map((value, i) => value / (theirs[i] ?? Number.NaN) - 1));
}

export const intervalText = ({ mean, half }: Interval, digits = 2) =>
  `${mean.toFixed(digits)} ± ${half.toFixed(digits)}`;
