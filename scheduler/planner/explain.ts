import { kvCapacityTokens } from '../roofline/deployment.ts';
import { meanLength } from '../serving/lengths.ts';
import { COST_LOAD, type Evaluation } from '../solver/evaluate.ts';
import type { Decision } from '../solver/plan.ts';
import { type Demand, type Option, type Pool, poolGpus } from '../solver/problem.ts';
import { Search } from '../solver/search.ts';
import type { PlannedModel, PoolValue } from './types.ts';

const name = (option: Option | undefined, pools: readonly Pool[]) =>
  option === undefined ? '?' : `TP ${option.tp} on ${pools[option.pool]?.id ?? '?'}`;

const usedGpus = ({ problem, counts }: Decision, p: number) => {
  const { oneEngine, gpusPerNode = 0 } = problem.pools[p] ?? {};
  return problem.options.reduce(
    (sum, { pool, tp }, o) => sum + (pool === p ? (oneEngine ? gpusPerNode : tp) * (counts[o] ?? 0) : 0),
    0,
  );
};

/** For each model: what binds it, and the next best way to place it. */
export function explainModels(
  decision: Decision,
  evaluation: Evaluation,
  pools: readonly Pool[],
  demands: readonly Demand[],
): PlannedModel[] {
  const { problem, counts, overloaded } = decision;
  const { options, settings } = problem;
  const search = new Search(problem, counts);
  const overload = overloaded || settings.objective === 'throughput';
  return demands.map((demand, m) => {
    const mine = options.flatMap((option, o) => (option.demand === m && (counts[o] ?? 0) > 0 ? [{ option, o }] : []));
    const capacity = mine.reduce((sum, { option, o }) => sum + option.capacity * (counts[o] ?? 0), 0);
    const why = [
      ...mine.map(({ option }) => batchBound(decision, option, demand, pools)),
      ...poolBound(decision, mine, pools),
    ];
    if (options.length <= RUNNER_UP_OPTIONS) why.push(runnerUp(decision, search, m, pools, demands));
    if (mine.length === 0)
      why.push(
        demand.rate === 0
          ? 'nobody asks for it'
          : 'no GPU is left for it: what others lose would be more than it gains',
      );
    return {
      model: demand.model.id,
      rate: demand.rate,
      unserved: overload ? Math.max(0, demand.rate - capacity) : (evaluation.unserved[m] ?? 0),
      latencyS: overload || mine.length === 0 ? undefined : evaluation.latency[m],
      why: why.filter((line) => line !== ''),
    };
  });
}

/** Beyond this a second look at every exchange takes longer than the plan. */
const RUNNER_UP_OPTIONS = 600;

function batchBound(decision: Decision, option: Option, demand: Demand, pools: readonly Pool[]): string {
  const { limits } = decision.problem.settings;
  const { deployment } = decision.table.step(option);
  const held = kvCapacityTokens(deployment, limits.memoryFraction);
  const batch = Math.floor(held / (meanLength(demand.input) + meanLength(demand.output)));
  const binds =
    batch < limits.maxSequences
      ? `memory (C2) ends its batch at about ${batch} sequences`
      : `the engine's limit ends its batch at ${limits.maxSequences} sequences`;
  return `${name(option, pools)}: ${option.capacity.toPrecision(3)} requests/s each (${option.source}); ${binds}`;
}

function poolBound(decision: Decision, mine: readonly { option: Option }[], pools: readonly Pool[]): string[] {
  return [...new Set(mine.map(({ option }) => option.pool))].flatMap((p) => {
    const pool = pools[p];
    if (pool === undefined) return [];
    const free = poolGpus(pool) - usedGpus(decision, p);
    return free === 0
      ? [`capacity (C1) of ${pool.id} binds: all ${poolGpus(pool)} GPUs are given`]
      : [`${pool.id} has ${free} GPUs left: more would not pay`];
  });
}

function runnerUp(
  decision: Decision,
  search: Search,
  m: number,
  pools: readonly Pool[],
  demands: readonly Demand[],
): string {
  const { options, settings } = decision.problem;
  const next = search.runnerUp(m);
  if (next === undefined) return 'no other single exchange is possible';
  const [from, to] = [options[next.from], options[next.to]];
  const text = `runner-up: one ${name(from, pools)} as ${name(to, pools)}`;
  if (settings.objective === 'throughput') {
    const demand = demands[m];
    const change = (to?.capacity ?? 0) - (from?.capacity ?? 0);
    return `${text}, ${change >= 0 ? '+' : ''}${change.toPrecision(3)} requests/s of ${demand?.rate ?? 0}`;
  }
  const rate = demands.reduce((sum, demand) => sum + demand.rate, 0);
  const change = next.cost - search.total();
  if (settings.objective === 'cost')
    return `${text}, ${change >= 0 ? '+' : ''}${change > 1e4 ? 'demand unserved' : `${change.toFixed(2)} USD/h`}`;
  return `${text}, mean latency ${change > 1e4 ? 'lost: demand unserved' : `${change >= 0 ? '+' : ''}${(change / rate).toFixed(4)} s`}`;
}

/** What a GPU of each kind is worth: shadow prices of the linear relaxation, so for small changes. */
export function explainPools(decision: Decision, pools: readonly Pool[], demands: readonly Demand[]): PoolValue[] {
  const { formulation, relaxed, problem } = decision;
  const rate = demands.reduce((sum, demand) => sum + demand.rate, 0);
  return pools.map((pool, p) => {
    const worth = -formulation.packing
      .filter((one) => one.pool === p)
      .reduce((sum, { row, perGpu }) => sum + (relaxed.duals[row] ?? 0) * perGpu, 0);
    return {
      pool: pool.id,
      gpus: poolGpus(pool),
      used: usedGpus(decision, p),
      oneMore: worthText(worth, problem.settings.objective, rate),
    };
  });
}

function worthText(worth: number, objective: string, rate: number): string {
  if (worth < 1e-9) return 'one more would change nothing';
  if (objective === 'throughput') return `one more serves ${(worth * 100).toFixed(2)} % more of the demand`;
  if (objective === 'cost') return `one more saves ${worth.toFixed(2)} USD/h`;
  return `one more takes ${(worth / rate).toFixed(4)} s off the mean latency`;
}

/** The demand cannot be served: which constraint, and the least that would help. */
export function explainOverload(
  decision: Decision,
  evaluation: Evaluation,
  pools: readonly Pool[],
  demands: readonly Demand[],
): string {
  if (decision.latencyS !== undefined) {
    return (
      `no plan serves everybody with a mean latency of ${decision.asked.latencyS} s: the limit binds. Smallest relaxation: --latency ${decision.latencyS.toPrecision(3)}. ` +
      'This plan serves as much as possible of the worst served model.'
    );
  }
  const safe = decision.asked.objective === 'cost' ? COST_LOAD : SAFE_LOAD;
  const share = evaluation.z * safe;
  const short = demands
    .filter((_, m) => (evaluation.unserved[m] ?? 0) > 0 || evaluation.z < 1)
    .map(({ model }) => model.id);
  const full = pools.filter((pool, p) => poolGpus(pool) - usedGpus(decision, p) === 0).map(({ id }) => id);
  const more = pools
    .map((pool, p) => {
      const worth = -decision.formulation.packing
        .filter((one) => one.pool === p)
        .reduce((sum, { row, perGpu }) => sum + (decision.relaxed.duals[row] ?? 0) * perGpu, 0);
      return {
        pool,
        needed: worth > 1e-12 ? Math.ceil((1 / safe - evaluation.z) / worth) : Number.POSITIVE_INFINITY,
      };
    })
    .filter(({ needed }) => Number.isFinite(needed) && needed > 0)
    .sort((a, b) => a.needed - b.needed)[0];
  const binds =
    decision.problem.settings.budget !== undefined && full.length < pools.length
      ? 'the budget'
      : `capacity (C1) of ${full.join(', ') || 'all pools'}`;
  const relax = more ? `, or about ${more.needed} more GPUs like those of ${more.pool.id} (${more.pool.gpu.id})` : '';
  return (
    `the demand cannot be served (${short.slice(0, 5).join(', ')}${short.length > 5 ? ' and others' : ''}): ${binds} binds. ` +
    `Smallest relaxation: ${(share * 100).toFixed(0)} % of all rates${relax}. This plan serves as much as possible of the worst served model.`
  );
}

/** Above this load queues grow without bound in practice. */
const SAFE_LOAD = 0.95;
