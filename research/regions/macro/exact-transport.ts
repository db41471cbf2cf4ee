import type { TransportProblem } from '../../../scheduler/regions/smooth-transport.ts';
import { LpProgram, solve } from '../../../scheduler/solver/highs.ts';
import {
  byRegion,
  DEFAULT_WEIGHTS,
  type MacroInput,
  type MacroPlan,
  type MacroPlanner,
  type MacroWeights,
  transportProblem,
} from './problem.ts';
import { byCapacity } from './smoothing-planner.ts';

/** Time limit of HiGHS, seconds; a plan of 37 regions takes some tenths. */
const TIME_LIMIT_S = 20;
/** Cost of a unit of work beyond the capacity, seconds: as in the smoothing QP. */
const OVERLOAD_COST = 30;

/**
 * min Σ m·⟨C, X⟩ over rows that sum to 1 with capacities as inequalities: optimal transport without memory, exact by
 * HiGHS.
 */
async function exactTransport(problem: TransportProblem): Promise<Float64Array> {
  const { rows, columns, mass, cost, load, capacity } = problem;
  const program = new LpProgram();
  const inRow: [number, number][][] = Array.from({ length: rows }, () => []);
  const inColumn: [number, number][][] = Array.from({ length: columns }, () => []);
  const places: { variable: number; at: number }[] = [];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const at = row * columns + column;
      const each = cost[at] ?? Number.POSITIVE_INFINITY;
      if (!Number.isFinite(each)) continue;
      // Rows without a task are also planned: the next slot may have one.
      const weight = Math.max(mass[row] ?? 0, 1e-6);
      const variable = program.column(weight * each, 0, 1);
      inRow[row]?.push([variable, 1]);
      inColumn[column]?.push([variable, weight * (load[at] ?? 0)]);
      places.push({ variable, at });
    }
  }
  for (const terms of inRow) if (terms.length > 0) program.row(1, 1, terms);
  for (const [column, terms] of inColumn.entries()) {
    const over = program.column(OVERLOAD_COST, 0, Number.POSITIVE_INFINITY);
    program.row(Number.NEGATIVE_INFINITY, capacity[column] ?? 0, [...terms, [over, -1]]);
  }
  const { values } = await solve(program, { timeLimitS: TIME_LIMIT_S, gap: 0, seed: 1, relaxed: true });
  const shares = new Float64Array(rows * columns);
  for (const { variable, at } of places) shares[at] = Math.max(0, values[variable] ?? 0);
  return shares;
}

/** An ablation: the costs and places of the smoothing planner, without smoothness. */
export function exactPlanner(weights: Partial<MacroWeights> = {}): MacroPlanner {
  const all = { ...DEFAULT_WEIGHTS, ...weights };
  return {
    name: 'exact OT',
    async plan(input: MacroInput): Promise<MacroPlan> {
      const problem = transportProblem(input, all);
      const shares = await exactTransport(problem);
      const regions = input.world.topology.regions.length;
      return { shares: byRegion(shares, problem.rows, regions, input.world.kinds.length), planner: 'exact OT' };
    },
  };
}

/** Shares by capacity, regardless of cost: the macro layer without optimal transport. */
export function proportionalPlanner(): MacroPlanner {
  return {
    name: 'by capacity',
    plan(input: MacroInput): MacroPlan {
      const problem = transportProblem(input, DEFAULT_WEIGHTS);
      const regions = input.world.topology.regions.length;
      return {
        shares: byRegion(byCapacity(problem), problem.rows, regions, input.world.kinds.length),
        planner: 'by capacity',
      };
    },
  };
}
