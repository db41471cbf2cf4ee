import { smoothTransport, type TransportProblem } from '../../../scheduler/regions/smooth-transport.ts';
import {
  byRegion,
  DEFAULT_WEIGHTS,
  type MacroInput,
  type MacroPlan,
  type MacroPlanner,
  type MacroWeights,
  transportProblem,
} from './problem.ts';

/** min ⟨C, P⟩ + λ‖P − P_prev‖², without learning. Keeps its last plan by kinds of servers. */
export function smoothingPlanner(weights: Partial<MacroWeights> = {}): MacroPlanner {
  const all = { ...DEFAULT_WEIGHTS, ...weights };
  let last: Float64Array | undefined;
  let duals: Float64Array | undefined;
  return {
    name: 'smoothing QP',
    plan(input: MacroInput): MacroPlan {
      const problem = transportProblem(input, all);
      const previous = last?.length === problem.cost.length ? reachable(last, problem) : byCapacity(problem);
      const { shares, prices } = smoothTransport(problem, previous, all.smoothness, duals);
      last = shares;
      duals = prices;
      const regions = input.world.topology.regions.length;
      return { shares: byRegion(shares, problem.rows, regions, input.world.kinds.length), planner: 'smoothing QP' };
    },
  };
}

/** The last plan without unreachable places; the rest of each row keeps its proportions. */
function reachable(last: Float64Array, problem: TransportProblem): Float64Array {
  const { rows, columns, cost } = problem;
  const fallback = byCapacity(problem);
  const kept = new Float64Array(last.length);
  for (let row = 0; row < rows; row++) {
    let sum = 0;
    for (let at = row * columns; at < (row + 1) * columns; at++)
      if (Number.isFinite(cost[at] ?? Number.NaN)) sum += last[at] ?? 0;
    for (let at = row * columns; at < (row + 1) * columns; at++) {
      if (!Number.isFinite(cost[at] ?? Number.NaN)) continue;
      kept[at] = sum > 1e-9 ? (last[at] ?? 0) / sum : (fallback[at] ?? 0);
    }
  }
  return kept;
}

/** Each row in proportion to the capacity that it can reach: the start of a planner without a previous plan. */
export function byCapacity({ rows, columns, cost, capacity }: TransportProblem): Float64Array {
  const shares = new Float64Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    const there = (column: number) => (Number.isFinite(cost[row * columns + column] ?? Number.NaN) ? 1 : 0);
    let [sum, count] = [0, 0];
    for (let column = 0; column < columns; column++) {
      sum += there(column) * (capacity[column] ?? 0);
      count += there(column);
    }
    for (let column = 0; column < columns; column++) {
      const part = sum > 0 ? (capacity[column] ?? 0) / sum : 1 / Math.max(1, count);
      shares[row * columns + column] = there(column) * part;
    }
  }
  return shares;
}
