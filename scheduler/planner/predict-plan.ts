import { distribution } from '../simulator/latency-distribution.ts';
import { seededRandom } from '../simulator/random.ts';
import { drawRequests } from '../simulator/request-arrivals.ts';
import { type ReplicaGroup, type SimulationResult, simulate } from '../simulator/simulate.ts';
import { stepsOf } from '../solver/option-table.ts';
import type { Demand, PlanOptions, Pool } from '../solver/planning-problem.ts';
import type { Plan } from './types.ts';

interface PredictedModel {
  model: string;
  result: SimulationResult | undefined;
}

export interface Prediction {
  models: PredictedModel[];
  /** Number of requests that ended, over all models, divided by the time until the last one ended. */
  requestsPerS: number;
  tokensPerS: number;
  /** Seconds, over all answered requests of all models; NaN if none was answered. */
  meanS: number;
  p95S: number;
  drainS: number;
  energyJ: number;
}

/**
 * Simulates the requests that all models get in `durationS` seconds, until the last response. They are routed to the
 * planned replicas by the plan's weights.
 */
export function predict(
  plan: Plan,
  pools: readonly Pool[],
  demands: readonly Demand[],
  options: PlanOptions,
  durationS: number,
  policy = 'weighted',
): Prediction {
  const models = demands.map((demand, m): PredictedModel => {
    const groups = demand.model.opaque === true ? [] : groupsOf(plan, pools, demand, options);
    if (groups.length === 0 || demand.rate === 0) return { model: demand.model.id, result: undefined };
    const arrivals = { kind: 'gamma', rate: demand.rate, cv: Math.max(0.05, demand.cv) } as const;
    const requests = drawRequests(
      { arrivals, input: demand.input, output: demand.output },
      { durationS },
      seededRandom(options.seed * 1000 + m),
    );
    const chosen = plan.pick?.(demand.model.id) ?? policy;
    return {
      model: demand.model.id,
      result: simulate({
        model: demand.model.id,
        groups,
        requests,
        limits: options.limits,
        policy: chosen,
        seed: options.seed,
      }),
    };
  });
  return { models, ...totals(models) };
}

function groupsOf(plan: Plan, pools: readonly Pool[], demand: Demand, options: PlanOptions): ReplicaGroup[] {
  return plan.placements
    .filter((placement) => placement.model === demand.model.id && placement.replicas > 0)
    .flatMap((placement) => {
      const pool = pools.find(({ id }) => id === placement.pool);
      if (pool === undefined) return [];
      const deployment = {
        model: demand.model,
        gpu: pool.gpu,
        ...(placement.spread ?? { tp: placement.tp }),
        weights: demand.weights,
        kv: demand.kv,
      };
      const { step, prefill } = stepsOf(deployment, options);
      return [
        {
          step,
          ...(prefill === undefined ? {} : { prefill }),
          replicas: placement.replicas,
          weight: placement.share / placement.replicas,
        },
      ];
    });
}

function totals(models: readonly PredictedModel[]): Omit<Prediction, 'models'> {
  const done = models.flatMap(({ result }) => (result === undefined ? [] : [result]));
  const drainS = Math.max(1e-9, ...done.map(({ durationS }) => durationS));
  const ended = done.reduce((sum, one) => sum + one.requests - one.refused, 0);
  const latencies = new Float64Array(ended);
  let at = 0;
  for (const { latencies: some } of done) {
    latencies.set(some, at);
    at += some.length;
  }
  const { mean, p95 } = distribution(latencies);
  return {
    requestsPerS: ended / drainS,
    tokensPerS: done.reduce((sum, one) => sum + one.tokensPerS * one.durationS, 0) / drainS,
    meanS: mean,
    p95S: p95,
    drainS,
    energyJ: done.reduce((sum, one) => sum + one.energyJ, 0),
  };
}
