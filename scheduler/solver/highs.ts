import loadHighs, { type Highs, type ModelData } from 'highs';
import { SchedulerError } from '../errors.ts';

/**
 * A linear or mixed-integer program under construction: columns are added first, then rows over them. The objective is
 * always minimized.
 */
export class LpProgram {
  readonly #cost: number[] = [];
  readonly #low: number[] = [];
  readonly #high: number[] = [];
  readonly #integer: boolean[] = [];
  readonly #rows: { low: number; high: number; terms: readonly (readonly [column: number, factor: number])[] }[] = [];

  column(cost: number, low: number, high: number, integer = false): number {
    this.#cost.push(cost);
    this.#low.push(low);
    this.#high.push(high);
    this.#integer.push(integer);
    return this.#cost.length - 1;
  }

  row(low: number, high: number, terms: readonly (readonly [number, number])[]): number {
    this.#rows.push({ low, high, terms });
    return this.#rows.length - 1;
  }

  bounds(column: number): [low: number, high: number] {
    return [this.#low[column] ?? 0, this.#high[column] ?? 0];
  }

  get size(): { columns: number; rows: number; integers: number } {
    return { columns: this.#cost.length, rows: this.#rows.length, integers: this.#integer.filter(Boolean).length };
  }

  data(relaxed: boolean): ModelData {
    const starts = [0];
    const indices: number[] = [];
    const values: number[] = [];
    for (const { terms } of this.#rows) {
      for (const [column, factor] of terms) {
        if (factor === 0) continue;
        indices.push(column);
        values.push(factor);
      }
      starts.push(indices.length);
    }
    const [numCols, numRows] = [this.#cost.length, this.#rows.length];
    return {
      numCols,
      numRows,
      colCost: this.#cost,
      colLower: this.#low,
      colUpper: this.#high,
      rowLower: this.#rows.map(({ low }) => low),
      rowUpper: this.#rows.map(({ high }) => high),
      matrix: { format: 'csr', numRows, numCols, starts, indices, values },
      ...(relaxed ? {} : { integrality: this.#integer.map((integer) => (integer ? 1 : 0)) }),
    };
  }
}

export interface LpSolution {
  status: 'optimal' | 'time-limit' | 'infeasible';
  /** Value of each column; empty if there is no solution. */
  values: Float64Array;
  /** Shadow price of each row; only for linear programs. */
  duals: Float64Array;
  objective: number;
  /** Proven lower bound on the objective of every solution. */
  bound: number;
  seconds: number;
}

interface SolveLimits {
  timeLimitS: number;
  gap: number;
  seed: number;
  relaxed?: boolean;
  /** Values of the columns in a known solution to start from. */
  start?: readonly number[];
}

/** Solves without waiting. */
export type Solve = (program: LpProgram, limits: SolveLimits) => LpSolution;

let loading: Promise<Highs> | undefined;

/** HiGHS (Huangfu and Hall 2018) in WebAssembly; one instance per process. */
export async function loadSolver(): Promise<Solve> {
  loading ??= loadHighs();
  const highs = await loading;
  return (program, limits) => solveWith(highs, program, limits);
}

export async function solve(program: LpProgram, limits: SolveLimits): Promise<LpSolution> {
  return (await loadSolver())(program, limits);
}

function solveWith(highs: Highs, program: LpProgram, limits: SolveLimits): LpSolution {
  const model = highs.createModel(program.data(limits.relaxed === true));
  try {
    model.options.set({
      output_flag: false,
      time_limit: limits.timeLimitS,
      mip_rel_gap: limits.gap,
      random_seed: limits.seed,
    });
    if (limits.start !== undefined && limits.relaxed !== true) model.setSolution({ colValue: limits.start });
    const started = performance.now();
    model.run();
    const seconds = (performance.now() - started) / 1e3;
    const status = model.getModelStatus();
    const { modelStatus } = highs.constants;
    const nothing = {
      values: new Float64Array(),
      duals: new Float64Array(),
      objective: Number.NaN,
      bound: Number.NaN,
      seconds,
    };
    if (status === modelStatus.infeasible || status === modelStatus.unboundedOrInfeasible)
      return { status: 'infeasible', ...nothing };
    const solution = model.getSolution();
    const found = Number(model.info.get('primal_solution_status')) === 2;
    if (!found) {
      if (status === modelStatus.timeLimit) return { status: 'time-limit', ...nothing };
      throw new SchedulerError('solver', `HiGHS ended with model status ${status} and no solution`);
    }
    const objective = model.getObjectiveValue();
    const dual = limits.relaxed === true ? objective : Number(model.info.get('mip_dual_bound'));
    return {
      status: status === modelStatus.timeLimit ? 'time-limit' : 'optimal',
      values: solution.colValue,
      duals: solution.rowDual,
      objective,
      bound: Number.isFinite(dual) ? dual : Number.NEGATIVE_INFINITY,
      seconds,
    };
  } finally {
    model.dispose();
  }
}
