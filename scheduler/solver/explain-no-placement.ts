import { precisionProblem } from '../catalogue/gpu-architecture.ts';
import { kvBytesPerToken, kvCapacityTokens, RUNTIME_BYTES, weightBytes } from '../roofline/model-deployment.ts';
import { tpProblem } from '../roofline/parallelism.ts';
import { meanLength } from '../simulator/length-distribution.ts';
import { parallelisms, SEQUENCES_MIN } from './parallelisms.ts';
import type { Demand, PlanOptions, Pool } from './planning-problem.ts';

const gb = (bytes: number) => (bytes / 1e9).toFixed(1);

/** Explains why a model fits nowhere, and the smallest change that would help. */
export function explainNoPlacement(demand: Demand, pools: readonly Pool[], settings: PlanOptions): string {
  const { model } = demand;
  if (model.opaque === true)
    return `${model.id}: its shape is unknown, and there is no measurement on a GPU of the inventory; --models ${model.id}=config.json describes it`;
  const asked = demand.tp;
  const problems = asked?.map((tp) => tpProblem(model, tp)).filter((problem) => problem !== undefined) ?? [];
  if (asked && problems.length === asked.length) return problems.join('; ');
  const tokens = SEQUENCES_MIN * (meanLength(demand.input) + meanLength(demand.output));
  const offers = pools.flatMap((pool) =>
    parallelisms(demand, pool).map((tp) => {
      const deployment = { model, gpu: pool.gpu, tp, weights: demand.weights, kv: demand.kv };
      const need = weightBytes(deployment) + tokens * kvBytesPerToken(deployment) + tp * RUNTIME_BYTES;
      return { pool, tp, need, have: tp * pool.gpu.memoryBytes * settings.limits.memoryFraction };
    }),
  );
  const unfit = [...new Set(pools.flatMap(({ gpu }) => precisionProblem(gpu, demand.weights, demand.kv) ?? []))];
  if (unfit.length > 0 && pools.every(({ gpu }) => precisionProblem(gpu, demand.weights, demand.kv) !== undefined))
    return `no GPU supports the weights of ${model.id}: ${unfit.join('; ')}`;
  const best = offers
    .filter(({ pool }) => precisionProblem(pool.gpu, demand.weights, demand.kv) === undefined)
    .sort((a, b) => a.need - a.have - (b.need - b.have))[0];
  if (best === undefined) return `${model.id}: none of its parallelisms fits on a node of any pool`;
  const smaller = (['fp8', 'int4'] as const).find((weights) => {
    if (precisionProblem(best.pool.gpu, weights, demand.kv) !== undefined) return false;
    const deployment = { model, gpu: best.pool.gpu, tp: best.tp, weights, kv: demand.kv };
    return kvCapacityTokens(deployment, settings.limits.memoryFraction) >= tokens;
  });
  const relax = smaller
    ? `smallest relaxation: weights in ${smaller} (it would then fit ${best.tp} × ${best.pool.gpu.id})`
    : `smallest relaxation: a node with ${gb(best.need / settings.limits.memoryFraction)} GB of GPU memory for one replica`;
  return (
    `${model.id} fits on no node: there is not enough GPU memory. Weights and ${SEQUENCES_MIN} sequences of mean length need ${gb(best.need)} GB; ` +
    `the best node offers ${gb(best.have)} GB (${best.tp} × ${best.pool.gpu.id}, ${settings.limits.memoryFraction} of memory); ${relax}`
  );
}
