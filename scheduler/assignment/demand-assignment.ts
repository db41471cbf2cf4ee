import { LpProgram, solve } from '../solver/highs.ts';
import { simplex } from './simplex.ts';
import type { Assignment } from './types.ts';

/** The input of an assignment: K groups of equal replicas, and J kinds of requests. */
interface AssignmentProblem {
  /** Requests/s of one replica of group k if it serves only kind j, as `rates[k][j]`; 0: it cannot serve the kind. */
  rates: readonly (readonly number[])[];
  /** Number of replicas in each group. */
  replicas: readonly number[];
  /** Requests/s of each kind. */
  demand: readonly number[];
}

const load = (problem: AssignmentProblem, k: number, j: number): number => {
  const rate = (problem.rates[k]?.[j] ?? 0) * (problem.replicas[k] ?? 0);
  return rate > 0 ? 1 / rate : Number.POSITIVE_INFINITY;
};

/**
 * Serves all demand so that the load of the fullest group is as low as possible: min τ, Σ_k x_kj = λ_j, Σ_j x_kj/n_kj ≤
 * τ. A load above 1 is the factor by which demand exceeds capacity. With `preference`, the assignment with the lowest
 * cost is chosen among those of equal load; `cost[k][j]` is per request. As long as no group is fuller than
 * `preference.idle`, loads may differ and only the cost counts. Kinds that no group can serve are left out of `served`.
 */
export function balance(
  problem: AssignmentProblem,
  preference?: { cost: readonly (readonly number[])[]; idle: number },
): Assignment {
  const [groups, kinds] = [problem.replicas.length, problem.demand.length];
  const idle = preference?.idle ?? 0;
  if (groups === 0) return assignmentOf(problem, () => 0);
  const each = loadsOf(problem);
  const at = (k: number, j: number) => each[k * kinds + j] ?? Number.POSITIVE_INFINITY;
  const { active, firsts } = fastestGroups(problem, at);
  const width = groups * active.length;
  const [excess, columns] = [width, width + 1 + groups];
  const cost = new Float64Array(columns);
  const start = new Float64Array(groups);
  const groupRows: Float64Array[] = [];
  for (let k = 0; k < groups; k++) {
    const row = new Float64Array(columns);
    for (let a = 0; a < active.length; a++) {
      const kind = active[a] ?? 0;
      const one = at(k, kind);
      row[a * groups + k] = Number.isFinite(one) ? one : 0;
      cost[a * groups + k] = preference?.cost[k]?.[kind] ?? 0;
      if (firsts[a] === k) start[k] = (start[k] ?? 0) + one * (problem.demand[kind] ?? 0);
    }
    row[excess] = -1;
    row[excess + 1 + k] = 1;
    groupRows.push(row);
  }
  const kindRows = active.map((kind, a) => {
    const row = new Float64Array(columns);
    // If a group cannot serve the kind, its column stays empty, and no basis uses it.
    for (let k = 0; k < groups; k++) if (Number.isFinite(at(k, kind))) row[a * groups + k] = 1;
    return row;
  });
  let [largest, demand] = [0, 0];
  for (const one of cost) largest = Math.max(largest, one);
  for (const one of problem.demand) demand += one;
  cost[excess] = largest === 0 ? 1 : largest * demand * 100;
  // The initial basis: each kind at its fastest group, the slack of each group except the fullest, and the excess,
  // which the row of the fullest group determines.
  let fullest = 0;
  for (let k = 1; k < groups; k++) if ((start[k] ?? 0) > (start[fullest] ?? 0)) fullest = k;
  const slack = (k: number) => (k === fullest && (start[k] ?? 0) > idle ? excess : excess + 1 + k);
  // Order of pivots: kinds first, then the row of the excess, then the slacks.
  const others = groupRows.flatMap((_, k) => (k === fullest ? [] : [k]));
  const order = [fullest, ...others];
  const x = simplex(
    [...kindRows, ...order.map((k) => groupRows[k] ?? new Float64Array(columns))],
    Float64Array.from([...active.map((kind) => problem.demand[kind] ?? 0), ...order.map(() => idle)]),
    cost,
    [...firsts.map((first, a) => a * groups + first), ...order.map(slack)],
  );
  return assignmentOf(problem, (k, j) => {
    const a = active.indexOf(j);
    return a < 0 || !Number.isFinite(at(k, j)) ? 0 : (x[a * groups + k] ?? 0);
  });
}

/** The kinds that have demand and that a group can serve, and the fastest group of each. */
function fastestGroups({ replicas, demand }: AssignmentProblem, at: (k: number, j: number) => number) {
  const [active, firsts]: [number[], number[]] = [[], []];
  for (const [j, wanted] of demand.entries()) {
    let first = 0;
    for (let k = 1; k < replicas.length; k++) if (at(k, j) < at(first, j)) first = k;
    if (!(wanted > 0) || !Number.isFinite(at(first, j))) continue;
    active.push(j);
    firsts.push(first);
  }
  return { active, firsts };
}

/** Load of each group if it gets one request per second of each kind. */
function loadsOf(problem: AssignmentProblem): Float64Array {
  const kinds = problem.demand.length;
  const each = new Float64Array(problem.replicas.length * kinds);
  for (let k = 0; k < problem.replicas.length; k++)
    for (let j = 0; j < kinds; j++) each[k * kinds + j] = load(problem, k, j);
  return each;
}

/** Requests of a kind wait only for groups with at most this multiple of the lowest cost for this kind. */
const COST_RATIO_MAX = 2;

/**
 * The throughput form of OServe §4.2, with waits. No group is filled above `full` (condition C3, from which C2 follows
 * because e_kj is n_kj), no kind gets more than its demand (C1), and the excess waits for the groups that suit it: min
 * Σ cost_kj x_kj + Σ_j (wait_j + least cost_j) u_j, Σ_k x_kj + u_j = λ_j, Σ_j x_kj/n_kj ≤ full. So a kind goes to a
 * group that does not suit it only if that group has free capacity and costs less than the wait. `flow` includes the
 * waiting requests: a load above `full` is a queue. Costs are per request.
 */
export function fillOrWait(
  problem: AssignmentProblem,
  { cost, wait, full }: { cost: readonly (readonly number[])[]; wait: readonly number[]; full: number },
): Assignment {
  const [groups, kinds] = [problem.replicas.length, problem.demand.length];
  const best = problem.demand.map((_, j) =>
    problem.replicas.reduce(
      (least, _, k) => (Number.isFinite(load(problem, k, j)) ? Math.min(least, cost[k]?.[j] ?? 0) : least),
      Number.POSITIVE_INFINITY,
    ),
  );
  const served = [...problem.demand.keys()].filter((j) => Number.isFinite(best[j]) && (problem.demand[j] ?? 0) > 0);
  // The columns are, in this order: flows by group and kind, waiting requests by kind, slacks by group.
  const columns = groups * kinds + kinds + groups;
  const price = new Float64Array(columns);
  const matrix: Float64Array[] = [];
  const right: number[] = [];
  for (const j of served) {
    const row = new Float64Array(columns);
    for (let k = 0; k < groups; k++) if (Number.isFinite(load(problem, k, j))) row[k * kinds + j] = 1;
    row[groups * kinds + j] = 1;
    price[groups * kinds + j] = (wait[j] ?? 0) + (best[j] ?? 0);
    matrix.push(row);
    right.push(problem.demand[j] ?? 0);
  }
  for (let k = 0; k < groups; k++) {
    const row = new Float64Array(columns);
    for (const j of served) {
      const each = load(problem, k, j);
      row[k * kinds + j] = Number.isFinite(each) ? each : 0;
      price[k * kinds + j] = cost[k]?.[j] ?? 0;
    }
    row[groups * kinds + kinds + k] = 1;
    matrix.push(row);
    right.push(full);
  }
  const basis = [
    ...served.map((j) => groups * kinds + j),
    ...problem.replicas.map((_, k) => groups * kinds + kinds + k),
  ];
  const x = simplex(matrix, Float64Array.from(right), price, basis);
  return assignmentOf(problem, (k, j) => {
    if (!served.includes(j) || !Number.isFinite(load(problem, k, j))) return 0;
    const capacity = (i: number) =>
      Number.isFinite(load(problem, i, j)) && (cost[i]?.[j] ?? 0) <= COST_RATIO_MAX * (best[j] ?? 0)
        ? 1 / load(problem, i, j)
        : 0;
    const all = problem.replicas.reduce((sum, _, i) => sum + capacity(i), 0);
    return (x[k * kinds + j] ?? 0) + (x[groups * kinds + j] ?? 0) * (all > 0 ? capacity(k) / all : 0);
  });
}

/** Same result as `balance`, computed by HiGHS. Tests compare the simplex and published results with it. */
export async function balanceByHighs(problem: AssignmentProblem): Promise<Assignment> {
  const [groups, kinds] = [problem.replicas.length, problem.demand.length];
  const program = new LpProgram();
  const excess = program.column(1, 0, Number.POSITIVE_INFINITY);
  const possible = (k: number, j: number) => Number.isFinite(load(problem, k, j));
  const x = Array.from({ length: groups }, (_, k) =>
    Array.from({ length: kinds }, (_, j) => program.column(0, 0, possible(k, j) ? Number.POSITIVE_INFINITY : 0)),
  );
  for (let j = 0; j < kinds; j++) {
    const wanted = x.some((_, k) => possible(k, j)) ? (problem.demand[j] ?? 0) : 0;
    program.row(
      wanted,
      wanted,
      x.map((row): [number, number] => [row[j] ?? 0, 1]),
    );
  }
  for (let k = 0; k < groups; k++) {
    const terms = (x[k] ?? []).map((column, j): [number, number] => [column, possible(k, j) ? load(problem, k, j) : 0]);
    program.row(Number.NEGATIVE_INFINITY, 0, [...terms, [excess, -1]]);
  }
  const { values } = await solve(program, { timeLimitS: 10, gap: 0, seed: 1, relaxed: true });
  return assignmentOf(problem, (k, j) => Math.max(0, values[x[k]?.[j] ?? 0] ?? 0));
}

function assignmentOf(problem: AssignmentProblem, of: (k: number, j: number) => number): Assignment {
  const flow = problem.replicas.map((_, k) => problem.demand.map((_, j) => of(k, j)));
  const loads = flow.map((row, k) =>
    row.reduce((sum, amount, j) => sum + (amount > 0 ? amount * load(problem, k, j) : 0), 0),
  );
  const served = problem.demand.map((_, j) => flow.reduce((sum, row) => sum + (row[j] ?? 0), 0));
  return { flow, served, loads, load: loads.reduce((most, one) => Math.max(most, one), 0) };
}
