import { type Evaluation, SERVED_TOLERANCE } from '../solver/evaluate-plan.ts';
import { takenGpus } from '../solver/formulation.ts';
import { type Demand, type Pool, poolGpus } from '../solver/planning-problem.ts';
import type { SolverDecision } from '../solver/solve-plan.ts';

/** Maximum number of additional GPUs that are suggested. */
const MORE_GPUS_MAX = 100_000;

/** Explains which constraint prevents the requested plan, and the smallest change that would help. */
export function explainShortfall(
  decision: SolverDecision,
  evaluation: Evaluation,
  pools: readonly Pool[],
  demands: readonly Demand[],
): string {
  const { shortfall, report, relief, asked } = decision;
  const found = report.impossible ? 'no plan' : 'no plan that was found in time';
  if (relief?.binds === 'budget') {
    return (
      `${found} serves everything for ${asked.budget ?? 0} USD per hour: the budget is too small. ` +
      `${(relief.usdPerHour ?? 0).toFixed(2)} USD per hour would be enough (--budget). ${leftOver(evaluation, shortfall, demands)}`
    );
  }
  if (shortfall === 'targets') {
    const could = relief?.latencyS === undefined ? '' : ` --latency ${relief.latencyS.toPrecision(3)} could be met.`;
    return `${found} serves everything within its latency targets.${could} This plan serves everything with the lowest latency.`;
  }
  const full = pools.filter((pool, p) => usedGpus(decision, p) >= poolGpus(pool));
  const binds =
    full.length > 0
      ? `all GPUs of ${full.map(({ id }) => id).join(', ')} are in use`
      : 'replicas do not fit the remaining GPUs';
  const share = Math.min(1, evaluation.share);
  const more = moreGpus(decision, evaluation, pools);
  return (
    `${found} serves everything: ${binds}. ` +
    `It would fit at ${(share * 100).toFixed(0)} % of all requests${more}. ${leftOver(evaluation, shortfall, demands)}`
  );
}

function leftOver(evaluation: Evaluation, shortfall: SolverDecision['shortfall'], demands: readonly Demand[]): string {
  if (shortfall === 'targets') return 'This plan serves everything, but misses its latency targets.';
  const without = demands.filter(
    ({ rate }, m) => rate > 0 && (evaluation.unserved[m] ?? 0) >= rate * (1 - SERVED_TOLERANCE),
  );
  const served = without.length === 0 ? 'Every model has a replica' : `No replica fits for ${names(without)}`;
  const rest =
    evaluation.share > 0
      ? `, and the worst served model gets ${(Math.min(1, evaluation.share) * 100).toFixed(0)} % of its requests served`
      : '';
  return `${served}${rest}.`;
}

const names = (demands: readonly Demand[]) =>
  demands
    .slice(0, 5)
    .map(({ model }) => model.id)
    .join(', ') + (demands.length > 5 ? ` and ${demands.length - 5} others` : '');

export function usedGpus({ problem, counts }: SolverDecision, p: number): number {
  return problem.options.reduce(
    (sum, option, o) => sum + (option.pool === p ? takenGpus(option, problem.pools) * (counts[o] ?? 0) : 0),
    0,
  );
}

/** Value of one more GPU of a pool, in the unit of the objective. */
export const worthOfOne = ({ prices }: SolverDecision, p: number): number =>
  prices.reduce((sum, { pool, perGpu, price }) => (pool === p ? sum + price * perGpu : sum), 0);

/** Number of additional GPUs that would help, of the kind that helps most by the shadow prices of the relaxation. */
function moreGpus(decision: SolverDecision, { share }: Evaluation, pools: readonly Pool[]): string {
  const best = pools
    .map((pool, p) => {
      const worth = worthOfOne(decision, p);
      return { pool, needed: worth > 1e-12 ? Math.ceil((1 - share) / worth) : Number.POSITIVE_INFINITY };
    })
    .filter(({ needed }) => needed > 0 && needed <= MORE_GPUS_MAX)
    .sort((a, b) => a.needed - b.needed)[0];
  return best === undefined
    ? ''
    : `, or with about ${best.needed} more ${best.pool.gpu.id} like those of ${best.pool.id}`;
}
