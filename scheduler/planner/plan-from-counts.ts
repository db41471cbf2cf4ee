import type { OptionTable } from '../solver/option-table.ts';
import type { Counts, Demand, Pool } from '../solver/planning-problem.ts';
import type { Plan, PlannedReplicas } from './types.ts';

/**
 * Makes a plan from given numbers of replicas, with routing in proportion to their capacity. Simulates the options that
 * it uses.
 */
export function planFromCounts(
  name: string,
  table: OptionTable,
  counts: Counts,
  demands: readonly Demand[],
  pools: readonly Pool[],
): Plan {
  const used = table.options
    .map((option, o) => ({ option, replicas: counts[o] ?? 0 }))
    .filter(({ replicas }) => replicas > 0);
  for (const { option } of used) table.simulateOption(option, false);
  const capacityOf = (m: number) =>
    used.reduce((sum, { option, replicas }) => sum + (option.demand === m ? replicas * option.capacity : 0), 0);
  const placements = used.map(({ option, replicas }): PlannedReplicas => {
    const [pool, demand, all] = [pools[option.pool], demands[option.demand], capacityOf(option.demand)];
    const capacity = replicas * option.capacity;
    const share = all > 0 ? capacity / all : 0;
    return {
      model: demand?.model.id ?? '',
      pool: pool?.id ?? '',
      gpu: pool?.gpu.id ?? '',
      tp: option.tp,
      ...(option.spread === undefined ? {} : { spread: option.spread }),
      gpus: option.gpus,
      replicas,
      share,
      rate: share * Math.min(demand?.rate ?? 0, all),
      capacity,
      source: option.source,
    };
  });
  return {
    objective: name,
    placements,
    models: demands.map((demand, m) => ({
      model: demand.model.id,
      rate: demand.rate,
      unserved: Math.max(0, demand.rate - capacityOf(m)),
      latencyS: undefined,
      why: [],
    })),
    pools: [],
    meanLatencyS: undefined,
    servedShare: Math.min(
      ...demands.map(({ rate }, m) => (rate > 0 ? capacityOf(m) / rate : Number.POSITIVE_INFINITY)),
    ),
    usdPerHour: placements.reduce(
      (sum, one) =>
        sum + one.replicas * (one.gpus ?? one.tp) * (pools.find(({ id }) => id === one.pool)?.gpu.usdPerHour ?? 0),
      0,
    ),
    report: undefined,
    infeasible: undefined,
  };
}
