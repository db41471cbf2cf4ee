import type { Problem } from './formulation.ts';

/**
 * Options that no best plan needs: where latency does not count, replicas on fewer GPUs each that together do at least as much on the same
 * GPUs. They pack at least as well and come in finer steps.
 */
export function dominated({ options, pools, usable, goal }: Problem): boolean[] {
  if (goal.kind === 'latency' || goal.kind === 'placed') return options.map(() => false);
  return options.map((option, o) =>
    options.some(
      (other, i) =>
        other.demand === option.demand &&
        other.pool === option.pool &&
        pools[option.pool]?.oneEngine !== true &&
        other.gpus < option.gpus &&
        option.gpus % other.gpus === 0 &&
        (usable[i]?.rate ?? 0) * (option.gpus / other.gpus) >= (usable[o]?.rate ?? 0),
    ),
  );
}
