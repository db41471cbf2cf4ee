import { normal, seededRandom } from '../../../scheduler/simulator/random.ts';
import type { TaskSource } from '../simulator/workload.ts';
import type { World } from '../world/world.ts';

/** Forecast of arrivals. */
export interface DemandForecast {
  readonly name: string;
  /** Called when a slot has ended: `arrived[origin][model]`. */
  observe(arrived: readonly (readonly number[])[]): void;
  /** Tasks of the slot that begins, if `ahead` is 0, or of a later one: `[origin][model]`; finite and at least 0. */
  expected(slot: number, ahead: number): number[][];
}

/** Knows the rates: the bound of all forecasters. A `factor` other than 1 makes the forecast wrong on purpose. */
export function oracle(source: TaskSource, factor = 1): DemandForecast {
  return {
    name: factor === 1 ? 'oracle' : `oracle x ${factor}`,
    observe() {},
    expected: (slot, ahead) => source.expected(slot + ahead).map((line) => line.map((count) => count * factor)),
  };
}

/** Exponentially smoothed counts, divided over models by past counts: a forecast that needs no training. */
export function smoothed(world: World, weight = 0.3): DemandForecast {
  const level = world.topology.regions.map(() => world.models.map(() => 0));
  let seen = 0;
  return {
    name: 'exponential smoothing',
    observe(arrived) {
      // In the first slots, all slots have equal weight.
      const w = Math.max(weight, 1 / ++seen);
      arrived.forEach((line, origin) => {
        const own = level[origin];
        if (own === undefined) return;
        line.forEach((count, model) => {
          if (Number.isFinite(count)) own[model] = (1 - w) * (own[model] ?? 0) + w * count;
        });
      });
    },
    expected: () => level.map((line) => [...line]),
  };
}

/**
 * A forecast that is degraded on purpose: each count is multiplied by exp(σ·N − σ²/2), which keeps its mean. The same
 * seed gives the same errors.
 */
export function degraded(base: DemandForecast, sigma: number, seed: number): DemandForecast {
  return {
    name: `${base.name}, σ ${sigma}`,
    observe: (arrived) => base.observe(arrived),
    expected: (slot, ahead) => {
      // Errors belong to the forecast slot: repeated forecasts of a slot have the same error.
      const random = seededRandom(seed * 65_537 + slot + ahead);
      return base
        .expected(slot, ahead)
        .map((line) => line.map((count) => count * Math.exp(sigma * normal(random) - sigma ** 2 / 2)));
    },
  };
}

/** (12): 1 − mean |F̂ − F| / (F + ε) over slots and origins, not below 0. Counts of all models together; ε = 1 task. */
export function accuracy(forecast: readonly (readonly number[])[], truth: readonly (readonly number[])[]): number {
  let [sum, count] = [0, 0];
  truth.forEach((line, origin) => {
    const of = (counts: readonly number[]) => counts.reduce((total, one) => total + one, 0);
    sum += Math.abs(of(forecast[origin] ?? []) - of(line)) / (of(line) + 1);
    count++;
  });
  return Math.max(0, 1 - sum / Math.max(1, count));
}
