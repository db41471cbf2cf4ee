import { DEFAULT_WEIGHTS } from '../macro/problem.ts';
import { AWAKE_USE, keepAwake, wakeForHeld } from '../micro/keep-awake.ts';
import type { LayoutOptions } from '../micro/layout.ts';
import type { RegionPolicy } from '../simulator/policy.ts';
import { plannablePrices } from '../world/price.ts';

/** Weight of the newest slot, as in the forecast of the two layers (`smoothed`). */
const WEIGHT = 0.3;

/**
 * Gives a baseline the powers of our micro layer, so that a comparison shows routing and not sleep: servers sleep, wake
 * and load models by (6), for the tasks that the baseline lately sent to each region. The baseline has no plan of
 * shares, so its own routing is the only sign of what a region will get.
 */
export function activated(inner: RegionPolicy, own: Partial<LayoutOptions> = {}): RegionPolicy {
  let seen = 0;
  let level: number[][] = [];
  return {
    name: `${inner.name}, activation`,
    choose: (job, cluster) => inner.choose(job, cluster),
    async slot(start, cluster) {
      await inner.slot?.(start, cluster);
      if (start.slot === 0) return;
      const weight = Math.max(WEIGHT, 1 / ++seen);
      level = start.routed.map((line, region) =>
        line.map((count, model) => (1 - weight) * (level[region]?.[model] ?? 0) + weight * count),
      );
      const layout: LayoutOptions = {
        secondsPerUsd: DEFAULT_WEIGHTS.secondsPerUsd,
        useMax: AWAKE_USE,
        meanWorkS: DEFAULT_WEIGHTS.meanWorkS,
        slotS: start.slotS,
        gamma: 1,
        ...own,
      };
      keepAwake(cluster, level, plannablePrices(cluster.world.prices, level.length, cluster.nowS), layout);
    },
    idle: (server, cluster) => inner.idle?.(server, cluster),
    holding(held, cluster) {
      inner.holding?.(held, cluster);
      wakeForHeld(held, cluster);
    },
  };
}
