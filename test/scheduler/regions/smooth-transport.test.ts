import fc from 'fast-check';
import loadHighs from 'highs';
import { describe, expect, it } from 'vitest';
import { smoothTransport, type TransportProblem } from '../../../scheduler/regions/smooth-transport.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';

function drawn(seed: number, rows: number, columns: number, room: number): TransportProblem {
  const random = seededRandom(seed);
  const load = new Float64Array(rows * columns).map(() => 1 + 9 * random());
  const mass = new Float64Array(rows).map(() => 10 * random());
  const need = mass.reduce((sum, value) => sum + value, 0) * 5.5;
  return {
    rows,
    columns,
    mass,
    load,
    cost: new Float64Array(rows * columns).map(() => 5 + 20 * random()),
    capacity: new Float64Array(columns).map(() => (room * need * (0.5 + random())) / columns),
  };
}

function objective(
  { rows, columns, mass, cost }: TransportProblem,
  shares: Float64Array,
  previous: Float64Array,
  lambda: number,
) {
  let sum = 0;
  for (let at = 0; at < rows * columns; at++) {
    const share = shares[at] ?? 0;
    const change = share - (previous[at] ?? 0);
    sum += (mass[Math.floor(at / columns)] ?? 0) * ((cost[at] ?? 0) * share + lambda * change * change);
  }
  return sum;
}

/** The same problem solved by HiGHS, an independent solver of quadratic programs. */
async function byHighs(problem: TransportProblem, previous: Float64Array, lambda: number): Promise<Float64Array> {
  const { rows, columns, mass, cost, load, capacity } = problem;
  const highs = await loadHighs();
  const n = rows * columns;
  const starts = [0];
  const [indices, values]: [number[], number[]] = [[], []];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      indices.push(row * columns + column);
      values.push(1);
    }
    starts.push(indices.length);
  }
  for (let column = 0; column < columns; column++) {
    for (let row = 0; row < rows; row++) {
      indices.push(row * columns + column);
      values.push((mass[row] ?? 0) * (load[row * columns + column] ?? 0));
    }
    starts.push(indices.length);
  }
  const massOf = (at: number) => mass[Math.floor(at / columns)] ?? 0;
  const every = Array.from({ length: n }, (_, at) => at);
  const model = highs.createModel({
    numCols: n,
    numRows: rows + columns,
    colCost: every.map((at) => massOf(at) * ((cost[at] ?? 0) - 2 * lambda * (previous[at] ?? 0))),
    colLower: every.map(() => 0),
    colUpper: every.map(() => 1),
    rowLower: [...Array<number>(rows).fill(1), ...Array<number>(columns).fill(Number.NEGATIVE_INFINITY)],
    rowUpper: [...Array<number>(rows).fill(1), ...capacity],
    matrix: { format: 'csr', numRows: rows + columns, numCols: n, starts, indices, values },
    hessian: {
      format: 'triangular',
      dimension: n,
      starts: [...every, n],
      indices: every,
      values: every.map((at) => 2 * lambda * massOf(at)),
    },
  });
  try {
    model.options.set({ output_flag: false });
    model.run();
    return model.getSolution().colValue;
  } finally {
    model.dispose();
  }
}

describe('the smoothing QP', () => {
  it.each([1, 2, 3, 4, 5, 6, 7, 8])('finds what HiGHS finds, problem %i', async (seed) => {
    const problem = drawn(seed, 4 + (seed % 3), 6, 1.3);
    const previous = new Float64Array(problem.rows * problem.columns).fill(1 / problem.columns);
    for (const lambda of [0.3, 3]) {
      const ours = objective(problem, smoothTransport(problem, previous, lambda).shares, previous, lambda);
      const theirs = objective(problem, await byHighs(problem, previous, lambda), previous, lambda);
      // Our solver may overload a column by a thousandth, which gains as little.
      expect(Math.abs(ours / theirs - 1)).toBeLessThan(2e-3);
    }
  });

  it('keeps rows whole and columns within their room where there is enough', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 1e6 }),
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 2, max: 12 }),
        (seed, rows, columns) => {
          const problem = drawn(seed, rows, columns, 4);
          const plan = smoothTransport(problem, new Float64Array(rows * columns).fill(1 / columns), 0.5);
          for (let row = 0; row < rows; row++) {
            const line = plan.shares.subarray(row * columns, (row + 1) * columns);
            expect(line.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 9);
            expect(Math.min(...line)).toBeGreaterThanOrEqual(0);
          }
          expect(plan.overload).toBeLessThan(2e-2);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('overloads places rather than refusing tasks where nothing has room, and where there is no place says so by zeros', () => {
    const problem = drawn(3, 5, 4, 1);
    problem.capacity.fill(0);
    const uniform = new Float64Array(20).fill(0.25);
    const plan = smoothTransport(problem, uniform, 0.5);
    expect(plan.shares.every((share) => Number.isFinite(share))).toBe(true);
    expect(plan.shares.reduce((sum, share) => sum + share, 0)).toBeCloseTo(5, 6);
    problem.cost.fill(Number.POSITIVE_INFINITY);
    expect(smoothTransport(problem, uniform, 0.5).shares.every((share) => share === 0)).toBe(true);
  });

  it('uses all capacity before it overloads a place by much, if the demand exceeds all capacity', () => {
    const problem = drawn(7, 30, 40, 0.8);
    problem.load.fill(5);
    const plan = smoothTransport(problem, new Float64Array(30 * 40).fill(1 / 40), 0.01);
    const used = Array.from(problem.capacity, (room, column) => {
      let sum = 0;
      for (let row = 0; row < 30; row++) sum += (problem.mass[row] ?? 0) * 5 * (plan.shares[row * 40 + column] ?? 0);
      return sum / room;
    });
    // Detours cost at most 20 s, less than the 30 s of a second of overload: no place is free while another is over.
    expect(Math.min(...used)).toBeGreaterThan(0.99);
  });

  it('moves less where smoothness is dearer', () => {
    const problem = drawn(5, 6, 6, 2);
    const previous = new Float64Array(36).fill(1 / 6);
    const moved = (lambda: number) =>
      smoothTransport(problem, previous, lambda).shares.reduce((sum, share) => sum + (share - 1 / 6) ** 2, 0);
    expect(moved(100)).toBeLessThan(moved(10));
    expect(moved(10)).toBeLessThan(moved(0.3));
  });
});
