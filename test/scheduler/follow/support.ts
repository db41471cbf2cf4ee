/** Four nodes of two GPUs in two shapes: one fast at prompts, one at answers. */
import type { FollowProblem, ForecastDemand, ReplicaOption } from '../../../scheduler/follow/follow-problem.ts';

export const MODEL = 'm';
export const KINDS = ['prompts', 'answers'];

const option = (pp: number, rates: number[]): ReplicaOption => ({
  place: pp === 1 ? { model: MODEL, pool: 'p', tp: 2 } : { model: MODEL, pool: 'p', tp: 1, spread: { tp: 1, pp } },
  gpus: 2,
  rates,
  latencyS: rates.map((rate) => 1 / rate),
});
/** TP 2: ten prompts or one answer a second; TP 1 × PP 2: one prompt or ten answers. */
export const OPTIONS = [option(1, [10, 1]), option(2, [1, 10])];

/** Slots in which demand is `[prompts, answers]` requests/s. */
export function demand(steps: readonly (readonly number[])[], more: Partial<ForecastDemand> = {}): ForecastDemand {
  return { model: MODEL, kinds: KINDS, mean: steps, high: steps, ...more };
}

export function problem(steps: readonly (readonly number[])[], more: Partial<FollowProblem> = {}): FollowProblem {
  return {
    options: OPTIONS,
    pools: [{ id: 'p', gpus: 8, replicas: 4 }],
    models: [demand(steps)],
    running: [3, 1],
    slotS: 60,
    switchS: 20,
    wave: 1,
    ...more,
  };
}
