import type { Option, PlanOptions, Pool } from './problem.ts';

/**
 * Options that no best plan needs: where latency does not count, replicas on fewer GPUs each that together do at least as much on the same
 * GPUs. They pack at least as well and come in finer steps. About two thirds of all options.
 */
export function dominated(options: readonly Option[], pools: readonly Pool[], settings: PlanOptions): boolean[] {
  const latencyCounts = settings.objective === 'latency' || settings.latencyS !== undefined;
  if (latencyCounts) return options.map(() => false);
  return options.map((option) =>
    options.some(
      (other) =>
        other.demand === option.demand &&
        other.pool === option.pool &&
        pools[option.pool]?.oneEngine !== true &&
        other.tp < option.tp &&
        option.tp % other.tp === 0 &&
        other.capacity * (option.tp / other.tp) >= option.capacity,
    ),
  );
}
