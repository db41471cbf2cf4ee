/**
 * Linear regression of logarithms that learns while it predicts: each value is predicted from the values before it. It
 * solves the normal equations again after every thousand values. Pure.
 */

const REFIT_EVERY = 1_000;
/** Number of values after which it predicts at all. */
const PREDICT_FROM = 100;
/** Ridge: keeps the equations solvable if two features are equal. */
const RIDGE = 1e-3;

export class LengthRegression {
  readonly #size: number;
  readonly #products: Float64Array;
  readonly #targets: Float64Array;
  #weights: Float64Array | undefined;
  #count = 0;

  /** @param features number of features, without the constant */
  constructor(features: number) {
    this.#size = features + 1;
    this.#products = new Float64Array(this.#size * this.#size);
    this.#targets = new Float64Array(this.#size);
  }

  /** Predicts a positive value; undefined: it has seen too few. @param features positive or 0 */
  predict(features: readonly number[]): number | undefined {
    if (this.#count < PREDICT_FROM) return undefined;
    if (this.#weights === undefined || this.#count % REFIT_EVERY === 0) this.#weights = this.#solve();
    const x = logsOf(features);
    return Math.max(0, Math.expm1(x.reduce((sum, one, n) => sum + one * (this.#weights?.[n] ?? 0), 0)));
  }

  learn(features: readonly number[], value: number): void {
    const x = logsOf(features);
    const y = Math.log1p(value);
    for (const [i, a] of x.entries()) {
      this.#targets[i] = (this.#targets[i] ?? 0) + a * y;
      for (const [j, b] of x.entries()) {
        const at = i * this.#size + j;
        this.#products[at] = (this.#products[at] ?? 0) + a * b;
      }
    }
    this.#count++;
  }

  /** Solves the equations by elimination with pivots. */
  #solve(): Float64Array {
    const n = this.#size;
    const rows = Array.from({ length: n }, (_, i) => {
      const row = [...this.#products.subarray(i * n, (i + 1) * n), this.#targets[i] ?? 0];
      row[i] = (row[i] ?? 0) + RIDGE;
      return row;
    });
    for (let column = 0; column < n; column++) {
      let pivot = column;
      for (let i = column + 1; i < n; i++)
        if (Math.abs(rows[i]?.[column] ?? 0) > Math.abs(rows[pivot]?.[column] ?? 0)) pivot = i;
      const top = rows[pivot] ?? [];
      rows[pivot] = rows[column] ?? [];
      rows[column] = top;
      for (const [i, row] of rows.entries()) {
        if (i === column) continue;
        const factor = (row[column] ?? 0) / (top[column] ?? 1);
        for (let j = column; j <= n; j++) row[j] = (row[j] ?? 0) - factor * (top[j] ?? 0);
      }
    }
    return Float64Array.from(rows, (row, i) => (row[n] ?? 0) / (row[i] ?? 1));
  }
}

const logsOf = (features: readonly number[]): number[] => [1, ...features.map(Math.log1p)];
