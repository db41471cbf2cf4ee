import { LpProgram, solve } from '../../../scheduler/solver/highs.ts';
import { TASK_TYPES } from '../world/tasks.ts';
import type { MacroInput, MacroPlan, MacroPlanner } from './problem.ts';

const TIME_LIMIT_S = 20;
/**
 * w1 and w3 of C_ij = w1·lat + w2·bw + w3·price. The paper does not give them; here a millisecond weighs as much as a
 * tenth of a cent. Topologies have no bandwidths.
 */
const PER_SECOND = 1;
const PER_USD_KWH = 1;

/**
 * Equation (2) as in the paper: P*, `regions × regions`, moves shares of requests μ onto shares of capacity ν at the
 * lowest ⟨C, P⟩. Both marginals are equalities, so that all regions have equal load, regardless of energy prices. Mass
 * that cannot move stays 0.
 */
async function paperTransport(
  mu: readonly number[],
  nu: readonly number[],
  cost: (from: number, to: number) => number,
): Promise<Float64Array> {
  const [regions, program] = [mu.length, new LpProgram()];
  const rows: [number, number][][] = mu.map(() => []);
  const columns: [number, number][][] = nu.map(() => []);
  for (let from = 0; from < regions; from++)
    for (let to = 0; to < regions; to++) {
      const variable = program.column(cost(from, to), 0, 1);
      rows[from]?.push([variable, 1]);
      columns[to]?.push([variable, 1]);
    }
  for (const [from, terms] of rows.entries()) program.row(mu[from] ?? 0, mu[from] ?? 0, terms);
  // The equalities are redundant: any of them follows from the others. The first one is left out so that rounding
  // cannot make them contradict each other.
  for (const [to, terms] of columns.entries()) if (to > 0) program.row(nu[to] ?? 0, nu[to] ?? 0, terms);
  const { values } = await solve(program, { timeLimitS: TIME_LIMIT_S, gap: 0, seed: 1, relaxed: true });
  return values.length === regions ** 2 ? values : new Float64Array(regions ** 2);
}

/** μ, ν and A* = P*_ij / μ_i of a slot; an origin without requests is spread by capacity. */
export async function transportTarget(input: MacroInput): Promise<Float64Array> {
  const { world, demand, prices } = input;
  const regions = world.topology.regions.length;
  const mu = normalised(demand.map((line) => line.reduce((sum, count) => sum + count, 0)));
  const nu = normalised(capacities(input));
  const finite = (value: number) => (Number.isFinite(value) ? value : 1e3);
  const plan = await paperTransport(mu, nu, (from, to) =>
    finite(PER_SECOND * (world.topology.latencyS[from]?.[to] ?? 0) + PER_USD_KWH * (prices[to] ?? 0)),
  );
  const shares = new Float64Array(regions ** 2);
  for (let from = 0; from < regions; from++)
    for (let to = 0; to < regions; to++) {
      const own = mu[from] ?? 0;
      shares[from * regions + to] = own > 1e-9 ? Math.max(0, (plan[from * regions + to] ?? 0) / own) : (nu[to] ?? 0);
    }
  return shares;
}

/** Capacity of each region in A100s, over all types of task. */
export function capacities({ world, servers }: Pick<MacroInput, 'world' | 'servers'>): number[] {
  return servers.map((counts) =>
    counts.reduce((sum, count, kind) => {
      const factor = world.kinds[kind]?.factor ?? [];
      return sum + (count * factor.length) / factor.reduce((total, one) => total + one, 0);
    }, 0),
  );
}

export function normalised(values: readonly number[]): number[] {
  const total = values.reduce((sum, value) => sum + value, 0);
  return values.map((value) => (total > 0 ? value / total : 1 / values.length));
}

/** One share per origin and region, the same for all types of task. */
export function forAllTypes(shares: Float64Array, regions: number): Float64Array {
  const all = new Float64Array(regions * TASK_TYPES.length * regions);
  for (let row = 0; row < regions * TASK_TYPES.length; row++) {
    const origin = Math.floor(row / TASK_TYPES.length);
    all.set(shares.subarray(origin * regions, (origin + 1) * regions), row * regions);
  }
  return all;
}

export function paperPlanner(): MacroPlanner {
  return {
    name: "paper's OT",
    async plan(input): Promise<MacroPlan> {
      const shares = await transportTarget(input);
      return { shares: forAllTypes(shares, input.world.topology.regions.length), planner: "paper's OT" };
    },
  };
}
