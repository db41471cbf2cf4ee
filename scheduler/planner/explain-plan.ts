import { kvCapacityTokens } from '../roofline/model-deployment.ts';
import { meanLength } from '../simulator/length-distribution.ts';
import type { Evaluation } from '../solver/evaluate-plan.ts';
import { Search, UNSERVED } from '../solver/greedy-search.ts';
import { HEADROOM_LOAD, latencyTarget } from '../solver/latency-targets.ts';
import { type Demand, type Option, type Pool, poolGpus } from '../solver/planning-problem.ts';
import type { SolverDecision } from '../solver/solve-plan.ts';
import { usedGpus, worthOfOne } from './explain-shortfall.ts';
import type { PlannedModel, PlannedReplicas, PoolValue } from './types.ts';

/** Assumed share of the time that a node is available, by tier, if the inventory does not specify it. */
const TIER_AVAILABILITY = { stable: 0.999, volatile: 0.9 } as const;

/** Share of the time that a node of the pool is available, 0 to 1. */
const nodeAvailability = (pool: Pool): number => pool.availability ?? TIER_AVAILABILITY[pool.tier ?? 'stable'];

/**
 * Share of the time that at least one replica of a model is available, if nodes fail independently. Replicas that fit
 * on one node are assumed to share it, and to fail together.
 */
function modelAvailability(
  demand: Demand,
  placements: readonly { model: string; pool: string; gpus: number; replicas: number }[],
  pools: readonly Pool[],
): number {
  let allGone = 1;
  for (const pool of pools) {
    const gpus = placements.reduce(
      (sum, one) =>
        one.model === demand.model.id && one.pool === pool.id
          ? sum + one.replicas * (pool.oneEngine === true ? pool.gpusPerNode : one.gpus)
          : sum,
      0,
    );
    allGone *= (1 - nodeAvailability(pool)) ** Math.ceil(gpus / pool.gpusPerNode);
  }
  return 1 - allGone;
}

const place = (option: Option | undefined, pools: readonly Pool[]) =>
  option === undefined
    ? '?'
    : `${option.gpus} × ${pools[option.pool]?.gpu.id ?? '?'} (${pools[option.pool]?.id ?? '?'})`;

/** For each model, finds the bottleneck and the next best placement. */
export function explainModels(
  decision: SolverDecision,
  evaluation: Evaluation,
  placements: readonly PlannedReplicas[],
  pools: readonly Pool[],
  demands: readonly Demand[],
): PlannedModel[] {
  const { problem, counts, asked, table } = decision;
  const { options } = problem;
  const search = options.length <= RUNNER_UP_OPTIONS ? new Search(problem, counts) : undefined;
  const taken = placements.map((one) => ({ ...one, gpus: one.gpus ?? one.tp }));
  return demands.map((demand, m): PlannedModel => {
    const mine = options.flatMap((option, o) => (option.demand === m && (counts[o] ?? 0) > 0 ? [{ option, o }] : []));
    const target = latencyTarget(demand, table.estimatesOf(m), asked);
    const counted = asked.objective !== 'throughput' && (asked.objective !== 'latency' || target.asked);
    const why = mine.length === 0 ? [withoutReplica(demand)] : [];
    for (const { option, o } of mine) why.push(limitOf(decision, option, o, demand));
    if (search !== undefined && mine.length > 0) why.push(runnerUp(decision, search, m, pools, demands));
    return {
      model: demand.model.id,
      rate: demand.rate,
      unserved: evaluation.unserved[m] ?? 0,
      latencyS:
        mine.length === 0 || demand.model.opaque === true || Number.isNaN(evaluation.latency[m] ?? Number.NaN)
          ? undefined
          : evaluation.latency[m],
      ...(counted && Number.isFinite(target.latencyS) ? { target } : {}),
      availability: modelAvailability(demand, taken, pools),
      ...(demand.alwaysOn === true ? { alwaysOn: true } : {}),
      why: why.filter((line) => line !== ''),
    };
  });
}

/**
 * With more options than this, the search for the next best placement takes longer than the plan, so it is left out.
 */
const RUNNER_UP_OPTIONS = 600;

const withoutReplica = ({ rate }: Demand) =>
  rate === 0
    ? 'it has no requests, so it gets no replica'
    : 'no GPU is left for it: others would lose more than it would gain';

function limitOf(decision: SolverDecision, option: Option, o: number, demand: Demand): string {
  const { problem, table } = decision;
  const { limits } = problem.settings;
  const deployment = table.step(option)?.deployment;
  if (deployment === undefined)
    return `a replica on ${place(option, problem.pools)} served ${perS(option.capacity)}${option.observed === true ? ', and may do more' : ''}; the model's shape is unknown, so no other layout was tried and its latency is not planned`;
  const held = kvCapacityTokens(deployment, limits.memoryFraction);
  const batch = Math.floor(held / (meanLength(demand.input) + meanLength(demand.output)));
  const most =
    batch < limits.maxSequences
      ? `its memory holds about ${batch} concurrent requests`
      : `the engine runs at most ${limits.maxSequences} concurrent requests`;
  const usable = problem.usable[o]?.rate ?? 0;
  const reason =
    usable >= option.capacity * (1 - 1e-6)
      ? ''
      : usable < HEADROOM_LOAD * option.capacity * (1 - 1e-6)
        ? `, ${perS(usable)} within its latency target`
        : `, ${perS(usable)} with a reserve for bursts`;
  return `a replica on ${place(option, problem.pools)} serves at most ${perS(option.capacity)} (${option.source})${reason}; ${most}`;
}

const perS = (rate: number) => `${rate.toPrecision(3)} requests/s`;

function runnerUp(
  decision: SolverDecision,
  search: Search,
  m: number,
  pools: readonly Pool[],
  demands: readonly Demand[],
): string {
  const { problem } = decision;
  const next = search.runnerUp(m);
  if (next === undefined) return '';
  const text = `next best: one replica on ${place(problem.options[next.to], pools)} instead of ${place(problem.options[next.from], pools)}`;
  const change = next.cost - search.total();
  if (change > UNSERVED / 1e3) return `${text}, but then not all requests could be served`;
  const sign = change >= 0 ? '+' : '−';
  switch (problem.goal.kind) {
    case 'replicas':
      return `${text}, ${sign}${Math.abs(change).toFixed(2)} ${problem.settings.objective === 'cost' ? 'USD per hour' : 'GPUs'}`;
    case 'latency': {
      const rate = demands.reduce((sum, demand) => sum + demand.rate, 0);
      return `${text}, mean latency ${sign}${Math.abs(change / rate).toFixed(4)} s`;
    }
    case 'share':
    case 'placed':
      return '';
  }
}

/** The value of one more GPU of each kind, by shadow prices of the linear relaxation, which hold for small changes. */
export function explainPools(
  decision: SolverDecision,
  pools: readonly Pool[],
  demands: readonly Demand[],
): PoolValue[] {
  const rate = demands.reduce((sum, demand) => sum + demand.rate, 0);
  return pools.map((pool, p) => {
    const worth = worthOfOne(decision, p);
    const used = usedGpus(decision, p);
    const free = poolGpus(pool) - used;
    return {
      pool: pool.id,
      gpu: pool.gpu.id,
      gpus: poolGpus(pool),
      used,
      oneMore: free > 0 ? 'nothing: some are free' : worthText(worth, decision, rate),
    };
  });
}

function worthText(worth: number, { problem: { goal, settings } }: SolverDecision, rate: number): string {
  if (worth < 1e-9) return 'nothing';
  switch (goal.kind) {
    case 'share':
      return `about ${(worth * 100).toPrecision(2)} % more of every model's requests`;
    case 'replicas':
      return settings.objective === 'cost'
        ? `about ${worth.toFixed(2)} USD per hour saved`
        : `about ${worth.toFixed(2)} GPUs elsewhere saved`;
    case 'latency':
      return `about ${(worth / rate).toFixed(4)} s of the mean latency`;
    case 'placed':
      return 'space for another model';
  }
}
