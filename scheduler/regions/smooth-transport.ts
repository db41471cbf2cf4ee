/**
 * Solves (A + ridge·I)·x = b for a symmetric, positive semidefinite A (row-major) by Cholesky's method. Overwrites A.
 */
function solveSymmetric(a: Float64Array, b: Float64Array, ridge: number): Float64Array {
  const n = b.length;
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = a[i * n + j] ?? 0;
      if (i === j) sum += ridge;
      const [own, other] = [i * n, j * n];
      for (let k = 0; k < j; k++) sum -= (a[own + k] as number) * (a[other + k] as number);
      a[i * n + j] = i === j ? Math.sqrt(Math.max(sum, 1e-300)) : sum / (a[j * n + j] ?? 1);
    }
  }
  const x = b.slice();
  for (let i = 0; i < n; i++) {
    let sum = x[i] ?? 0;
    for (let k = 0; k < i; k++) sum -= (a[i * n + k] ?? 0) * (x[k] ?? 0);
    x[i] = sum / (a[i * n + i] ?? 1);
  }
  for (let i = n - 1; i >= 0; i--) {
    let sum = x[i] ?? 0;
    for (let k = i + 1; k < n; k++) sum -= (a[k * n + i] ?? 0) * (x[k] ?? 0);
    x[i] = sum / (a[i * n + i] ?? 1);
  }
  return x;
}

/**
 * Rows (an origin and a class of task) are distributed over columns (places with capacity). All matrices are dense and
 * row-major: `of[row * columns + column]`.
 */
export interface TransportProblem {
  rows: number;
  columns: number;
  /** Tasks of each row. */
  mass: Float64Array;
  /** Cost of one task of the row in that column, seconds; infinite if it cannot run there. */
  cost: Float64Array;
  /** Capacity of the column that a task uses; same unit as `capacity`. */
  load: Float64Array;
  capacity: Float64Array;
}

interface TransportPlan {
  /** Share of each row by column. The shares of each row with a possible column sum to 1. */
  shares: Float64Array;
  /** Largest overload of a column, as a share of its capacity; above 0 if demand exceeds capacity. */
  overload: number;
  rounds: number;
  /** Dual prices of the columns, seconds per unit of capacity: a good start for a similar problem. */
  prices: Float64Array;
}

/**
 * Upper bound of the price per unit of capacity: at this price a column is overloaded instead of a task refused. Half a
 * minute of delay for each second of work exceeds the cost of any detour. Larger prices make Newton's system
 * ill-conditioned.
 */
const PRICE_MAX = 30;
/** Usually 5 to 20. */
const ROUNDS_MAX = 100;
/**
 * Maximum number of rounds from the given prices, or from none. They are a bad start if the demand jumped, or exceeds the
 * capacity.
 */
const DIRECT_ROUNDS_MAX = 30;
/**
 * From a bad start, problems with these multiples of λ are solved first, each from the prices of the one before. If
 * λ is small, rows jump between columns when prices change a little, and Newton's method does not end without them: at
 * a demand above all capacity it stopped with columns at eight times their capacity, and other columns free.
 */
const CONTINUATION = [64, 16, 4, 1] as const;
/** Overload, or unused capacity of a column with a price, that counts as zero; share of capacity. */
const TOLERANCE = 1e-3;
/** The same for the problems that are only solved for a start. */
const START_TOLERANCE = 0.05;
/** Share of the predicted gain that a step must reach (Armijo 1966). */
const SUFFICIENT = 0.1;
/**
 * Added to the diagonal of Newton's system as a share of its scale (Levenberg 1944): a step that overshoots a kink is
 * repeated with a shorter length.
 */
const DAMPING = { first: 1e-3, least: 1e-6, most: 1e12 };

/**
 * min Σ m·(⟨C, X⟩ + λ‖X − X₀‖²) over rows that sum to 1, with capacities as inequalities. λ in seconds, `previous` is
 * X₀, `start` the prices of a similar problem's plan. Given the columns' prices, each row is exactly a projection on
 * the simplex. The remaining problem is a concave dual in the prices, piecewise quadratic, which a projected Newton
 * method solves in a few steps (Bertsekas 1982).
 */
export function smoothTransport(
  problem: TransportProblem,
  previous: Float64Array,
  lambda: number,
  start?: Float64Array,
): TransportPlan {
  const from = start?.length === problem.columns ? start : new Float64Array(problem.columns);
  const first = solveFrom(problem, previous, lambda, from, DIRECT_ROUNDS_MAX);
  if (first.converged) return first;
  let { rounds } = first;
  let plan: TransportPlan = {
    shares: new Float64Array(),
    overload: 0,
    rounds,
    prices: new Float64Array(problem.columns),
  };
  for (const factor of CONTINUATION) {
    const tolerance = factor > 1 ? START_TOLERANCE : TOLERANCE;
    plan = solveFrom(problem, previous, factor * lambda, plan.prices, ROUNDS_MAX, tolerance);
    rounds += plan.rounds;
  }
  return { ...plan, rounds };
}

function solveFrom(
  problem: TransportProblem,
  previous: Float64Array,
  lambda: number,
  start: Float64Array,
  roundsMax: number,
  tolerance = TOLERANCE,
): TransportPlan & { converged: boolean } {
  const dual = new Dual(problem, previous, lambda);
  let prices = start.slice();
  let value = dual.evaluate(prices);
  let damping = DAMPING.first;
  let rounds = 0;
  while (rounds < roundsMax && dual.distance(prices) > tolerance) {
    const { step: system, gradient } = dual.system(prices);
    for (let accepted = false; !accepted && rounds < roundsMax; rounds++) {
      const step = system(damping);
      const next = prices.map((price, d) => Math.min(PRICE_MAX, Math.max(0, price + (step[d] ?? 0))));
      // The gain that the gradient predicts for this step. Newton's step reaches half of it.
      const promised = next.reduce((sum, price, d) => sum + (price - (prices[d] ?? 0)) * (gradient[d] ?? 0), 0);
      const found = dual.evaluate(next);
      accepted = found - value >= SUFFICIENT * promised;
      damping = accepted ? Math.max(DAMPING.least, damping / 10) : damping * 10;
      if (accepted) [prices, value] = [next, found];
      else if (damping > DAMPING.most) rounds = roundsMax;
    }
    dual.evaluate(prices);
  }
  const converged = dual.distance(prices) <= TOLERANCE;
  return { shares: dual.shares, overload: dual.overload(), rounds, prices, converged };
}

class Dual {
  readonly shares: Float64Array;
  readonly #problem: TransportProblem;
  readonly #previous: Float64Array;
  readonly #lambda: number;
  /** Capacity of each column that the shares use. */
  readonly #used: Float64Array;

  constructor(problem: TransportProblem, previous: Float64Array, lambda: number) {
    this.#problem = problem;
    this.#previous = previous;
    this.#lambda = lambda;
    this.shares = new Float64Array(problem.rows * problem.columns);
    this.#used = new Float64Array(problem.columns);
  }

  /** Sets `shares` to the optimum for these prices and returns the dual's value. */
  evaluate(prices: Float64Array): number {
    const { rows, columns, mass, cost, load, capacity } = this.#problem;
    this.#used.fill(0);
    let value = 0;
    for (let row = 0; row < rows; row++) {
      projectRow(this.#problem, this.#previous, this.#lambda, prices, this.shares, row);
      const weight = mass[row] ?? 0;
      let own = 0;
      for (let column = 0; column < columns; column++) {
        const at = row * columns + column;
        const share = this.shares[at] ?? 0;
        const change = share - (this.#previous[at] ?? 0);
        own += this.#lambda * change * change;
        if (share <= 0) continue;
        own += ((cost[at] ?? 0) + (load[at] ?? 0) * (prices[column] ?? 0)) * share;
        this.#used[column] = (this.#used[column] ?? 0) + weight * (load[at] ?? 0) * share;
      }
      value += weight * own;
    }
    for (let column = 0; column < columns; column++) value -= (prices[column] ?? 0) * (capacity[column] ?? 0);
    return value;
  }

  /**
   * Distance of a column from its optimum: overloaded with a price that can rise, or with free capacity and a price
   * above 0.
   */
  distance(prices: Float64Array): number {
    let worst = 0;
    for (let column = 0; column < this.#problem.columns; column++) {
      const room = this.#problem.capacity[column] ?? 0;
      const over = ((this.#used[column] ?? 0) - room) / Math.max(room, 1);
      const price = prices[column] ?? 0;
      if (over > 0 ? price < PRICE_MAX : price > 0) worst = Math.max(worst, Math.abs(over));
    }
    return worst;
  }

  overload(): number {
    let worst = 0;
    for (let column = 0; column < this.#problem.columns; column++) {
      const room = this.#problem.capacity[column] ?? 0;
      worst = Math.max(worst, ((this.#used[column] ?? 0) - room) / Math.max(room, 1));
    }
    return worst;
  }

  /**
   * Returns Newton's step as a function of its damping, over the columns that their gradient does not hold at a bound.
   */
  system(prices: Float64Array): { gradient: Float64Array; step: (damping: number) => Float64Array } {
    const { rows, columns, mass, load, capacity } = this.#problem;
    const gradient = this.#used.map((used, column) => used - (capacity[column] ?? 0));
    const place = new Int32Array(columns).fill(-1);
    const free: number[] = [];
    for (let column = 0; column < columns; column++) {
      const [price, rise] = [prices[column] ?? 0, gradient[column] ?? 0];
      if ((price <= 0 && rise <= 0) || (price >= PRICE_MAX && rise >= 0)) continue;
      place[column] = free.length;
      free.push(column);
    }
    const size = free.length;
    const hessian = new Float64Array(size * size);
    // The diagonal as if each row had another column. If all rows have only one column, the true diagonal is 0 and
    // gives no scale.
    let stiffness = 0;
    const scale = 1 / (2 * this.#lambda);
    // Only the lower triangle, which is all that `solveSymmetric` reads.
    const [places, loads] = [new Int32Array(size), new Float64Array(size)];
    for (let row = 0; row < rows; row++) {
      let [active, movable] = [0, 0];
      for (let column = 0; column < columns; column++) {
        if ((this.shares[row * columns + column] ?? 0) <= 0) continue;
        active++;
        const at = place[column] ?? -1;
        if (at < 0) continue;
        places[movable] = at;
        loads[movable++] = load[row * columns + column] ?? 0;
      }
      const weight = (mass[row] ?? 0) * scale;
      for (let a = 0; a < movable; a++) {
        const [own, first] = [weight * (loads[a] ?? 0), (places[a] ?? 0) * size];
        stiffness += own * (loads[a] ?? 0);
        hessian[first + (places[a] ?? 0)] = (hessian[first + (places[a] ?? 0)] ?? 0) + own * (loads[a] ?? 0);
        const shared = own / active;
        for (let b = 0; b <= a; b++) {
          const at = first + (places[b] as number);
          hessian[at] = (hessian[at] as number) - shared * (loads[b] as number);
        }
      }
    }
    const rise = Float64Array.from(free, (column) => gradient[column] ?? 0);
    const step = (damping: number) => {
      const step = new Float64Array(columns);
      const solved = solveSymmetric(hessian.slice(), rise, (damping * stiffness) / Math.max(1, size));
      for (const [index, column] of free.entries()) step[column] = solved[index] ?? 0;
      return step;
    };
    return { gradient, step };
  }
}

/**
 * Writes the row's shares: max(0, X₀ − (C + load·price)/2λ − threshold), with the threshold that makes them sum to 1
 * (Michelot 1986).
 */
function projectRow(
  { columns, cost, load }: TransportProblem,
  previous: Float64Array,
  lambda: number,
  prices: Float64Array,
  shares: Float64Array,
  row: number,
): void {
  const first = row * columns;
  const scale = 1 / (2 * lambda);
  let highest = Number.NEGATIVE_INFINITY;
  for (let column = 0; column < columns; column++) {
    const at = first + column;
    const value = (previous[at] ?? 0) - ((cost[at] ?? 0) + (load[at] ?? 0) * (prices[column] ?? 0)) * scale;
    shares[at] = value;
    if (value > highest) highest = value;
  }
  if (highest === Number.NEGATIVE_INFINITY) {
    shares.fill(0, first, first + columns);
    return;
  }
  // A value more than 1 below the highest cannot keep a share; from there the threshold only rises.
  let threshold = highest - 1;
  for (let before = -1; ; ) {
    let [count, sum] = [0, 0];
    for (let at = first; at < first + columns; at++) {
      const value = shares[at] ?? 0;
      if (value <= threshold) continue;
      count++;
      sum += value;
    }
    threshold = Math.max(threshold, (sum - 1) / count);
    if (count === before) break;
    before = count;
  }
  for (let at = first; at < first + columns; at++) shares[at] = Math.max(0, (shares[at] ?? 0) - threshold);
}
