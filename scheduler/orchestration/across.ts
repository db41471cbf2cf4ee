import { SchedulerError } from '../errors.ts';
import { Program, solve } from '../solver/highs.ts';
import type { RateTable } from './rates.ts';
import type { DeploymentPlan, Group } from './types.ts';

/** GPUs of one kind that several models share. */
export interface SharedPool {
  id: string;
  gpus: number;
}

/** A model on one kind of GPUs. All tables of a model have the same kinds of requests. */
export interface Choice {
  model: string;
  pool: string;
  table: RateTable;
  /** Requests/s of each kind; the same in every pool of the model. */
  demand: readonly number[];
}

export interface AcrossResult {
  /** Load of everything if spread so: below 1 all demand is served with room to spare. */
  load: number;
  /** By choice. */
  plans: { model: string; pool: string; plan: DeploymentPlan; flow: number[][] }[];
  /** No deployment has a load below this. */
  bound: number;
}

/**
 * Deployments of several models on several kinds of GPUs at once, by the solver of the planner (`solver/highs`): the largest share z of all demand that can be served.
 * max z with Σ x ≥ λ z, Σ_j x_oj / n_oj ≤ y_o and Σ GPUs·y ≤ pool, y whole: 1/z is the load of the fullest, so it is the makespan form over all
 * deployments at once, and linear. Throws `infeasible` where a kind fits nowhere.
 */
export async function deployAcross(
  choices: readonly Choice[],
  pools: readonly SharedPool[],
  { timeLimitS = 20, gap = 1e-3, seed = 1 } = {},
): Promise<AcrossResult> {
  const program = new Program();
  const share = program.column(-1, 0, Number.POSITIVE_INFINITY);
  const used = new Map<string, [number, number][]>(pools.map(({ id }) => [id, []]));
  const servers = new Map<string, [number, number][]>();
  const options = choices.flatMap((choice) =>
    choice.table.shapes.map((of) => {
      const each = of.shape.tp * of.shape.pp;
      const pool = pools.find(({ id }) => id === choice.pool);
      const replicas = program.column(0, 0, Math.floor((pool?.gpus ?? 0) / each), true);
      used.get(choice.pool)?.push([replicas, each]);
      const terms: [number, number][] = [[replicas, -1]];
      const flow = of.rates.map((rate, j) => {
        const column = program.column(0, 0, rate > 0 ? Number.POSITIVE_INFINITY : 0);
        terms.push([column, rate > 0 ? 1 / rate : 0]);
        const key = `${choice.model}|${j}`;
        servers.set(key, [...(servers.get(key) ?? []), [column, 1]]);
        return column;
      });
      program.row(Number.NEGATIVE_INFINITY, 0, terms);
      return { choice, shape: of.shape, replicas, flow };
    }),
  );
  const demands = new Map(choices.flatMap(({ model, demand }) => demand.map((rate, j) => [`${model}|${j}`, rate])));
  for (const [key, rate] of demands) {
    if (rate > 0) program.row(0, Number.POSITIVE_INFINITY, [...(servers.get(key) ?? []), [share, -rate]]);
  }
  for (const { id, gpus } of pools) program.row(0, gpus, used.get(id) ?? []);
  const solved = await solve(program, { timeLimitS, gap, seed });
  const z = solved.values[share] ?? 0;
  if (solved.status === 'infeasible' || !(z > 1e-9))
    throw new SchedulerError('infeasible', 'some kind of requests fits on none of these GPUs');
  return {
    load: 1 / z,
    bound: 1 / Math.max(-solved.bound, 1e-12),
    plans: choices.map((choice) => {
      const own = options.filter((one) => one.choice === choice && Math.round(solved.values[one.replicas] ?? 0) > 0);
      const plan = own.map(
        ({ shape, replicas }): Group => ({ shape, replicas: Math.round(solved.values[replicas] ?? 0) }),
      );
      const flow = own.map((one) => one.flow.map((column) => (solved.values[column] ?? 0) / z));
      return { model: choice.model, pool: choice.pool, plan, flow };
    }),
  };
}
