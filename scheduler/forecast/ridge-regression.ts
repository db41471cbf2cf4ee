import { calibrated } from './conformal-intervals.ts';
import type { Forecaster, Predict } from './types.ts';

interface RidgeOptions {
  /** Number of previous slots that are inputs, by their counts. */
  lags: number;
  /** Number of slots of a season; the count of the same slot one season earlier is another input. Absent: no season. */
  period?: number;
}

/** Maximum number of windows that a fit uses: the newest ones, which suffice for several hundred coefficients. */
const WINDOWS_MAX = 3000;
/** Weight of the sum of squared coefficients, relative to the mean squared error. Inputs have unit variance. */
const PENALTY = 0.05;

/**
 * Linear regression on the last slots, with a penalty on the coefficients (Hoerl and Kennard 1970); one regression for
 * each series. A forecast several slots ahead uses the forecasts of the slots before it as inputs.
 */
export function ridge({ lags, period }: RidgeOptions): Forecaster {
  return calibrated({
    name: `ridge on ${lags} slots`,
    fit: (values) => {
      const models = values.map((series) => fitSeries(series, lags, period));
      const predict: Predict = (seen, horizon) =>
        seen.map((series, s) => {
          const weights = models[s];
          if (weights === undefined) return new Array<number>(horizon).fill(series.at(-1) ?? 0);
          const extended = [...series];
          return Array.from({ length: horizon }, () => {
            const next = dot(weights, inputs(extended, extended.length, lags, period));
            extended.push(next);
            return next;
          });
        });
      return predict;
    },
  });
}

/**
 * Inputs for slot `at`: the constant 1, the previous slots, and the same slot one season earlier. Counts are relative
 * to the mean level of the last slots.
 */
function inputs(series: readonly number[], at: number, lags: number, period: number | undefined): number[] {
  const row = [1];
  for (let lag = 1; lag <= lags; lag++) row.push(series[at - lag] ?? series[0] ?? 0);
  if (period !== undefined) row.push(series[at - period] ?? series[at - 1] ?? 0);
  return row;
}

function fitSeries(series: readonly number[], lags: number, period: number | undefined): number[] | undefined {
  const from = Math.max(lags, series.length - WINDOWS_MAX);
  const count = series.length - from;
  const width = 1 + lags + (period === undefined ? 0 : 1);
  // A fit needs at least twice as many windows as coefficients; fewer do not determine the coefficients well.
  if (count < 2 * width) return undefined;
  const scale = series.reduce((sum, value) => sum + value * value, 0) / series.length || 1;
  const normal = Array.from({ length: width }, () => new Float64Array(width));
  const right = new Float64Array(width);
  for (let at = from; at < series.length; at++) {
    const row = inputs(series, at, lags, period);
    const truth = series[at] ?? 0;
    for (let i = 0; i < width; i++) {
      const own = normal[i];
      if (own === undefined) continue;
      for (let j = 0; j <= i; j++) own[j] = (own[j] ?? 0) + ((row[i] ?? 0) * (row[j] ?? 0)) / count;
      right[i] = (right[i] ?? 0) + ((row[i] ?? 0) * truth) / count;
    }
  }
  // The constant's coefficient is not penalized, except for a small term that keeps the system solvable.
  for (const [i, row] of normal.entries()) row[i] = (row[i] ?? 0) + (i === 0 ? 1e-9 : PENALTY * scale * 0.01);
  return solvePositive(normal, right);
}

const dot = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0);

/** Solves a symmetric positive definite system by Cholesky decomposition. `matrix` is its lower half. */
function solvePositive(matrix: Float64Array[], right: Float64Array): number[] {
  const n = right.length;
  for (let i = 0; i < n; i++) {
    const row = matrix[i] ?? new Float64Array(n);
    for (let j = 0; j <= i; j++) {
      const other = matrix[j] ?? row;
      let sum = row[j] ?? 0;
      for (let k = 0; k < j; k++) sum -= (row[k] ?? 0) * (other[k] ?? 0);
      row[j] = i === j ? Math.sqrt(Math.max(sum, 1e-300)) : sum / (other[j] ?? 1);
    }
  }
  const x = Array.from(right);
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < i; k++) x[i] = (x[i] ?? 0) - (matrix[i]?.[k] ?? 0) * (x[k] ?? 0);
    x[i] = (x[i] ?? 0) / (matrix[i]?.[i] ?? 1);
  }
  for (let i = n - 1; i >= 0; i--) {
    for (let k = i + 1; k < n; k++) x[i] = (x[i] ?? 0) - (matrix[k]?.[i] ?? 0) * (x[k] ?? 0);
    x[i] = (x[i] ?? 0) / (matrix[i]?.[i] ?? 1);
  }
  return x;
}
