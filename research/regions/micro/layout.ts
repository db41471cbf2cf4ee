import { smoothTransport, type TransportProblem } from '../../../scheduler/regions/smooth-transport.ts';
import { takesType, taskUsd } from '../macro/problem.ts';
import { byCapacity } from '../macro/smoothing-planner.ts';
import { TASK_TYPES } from '../world/tasks.ts';
import type { World } from '../world/world.ts';

export interface LayoutOptions {
  /** Seconds of response that a saved US dollar is worth. */
  secondsPerUsd: number;
  /** Planned share of an awake server's time. */
  useMax: number;
  slotS: number;
  meanWorkS: number;
  /** True: each kind of server serves only the type of task that it is made for (Table 1b). */
  madeOnly?: boolean;
  /** γ of (6): servers for this number of standard deviations of arrivals above their mean. */
  gamma: number;
}

/** There are few kinds: layouts may follow the demand immediately, servers follow gradually. */
const LAYOUT_SMOOTHNESS = 0.3;

/**
 * How many servers of each kind a region wants awake for each model, `[kind][model]`, as fractions. Its expected tasks
 * are spread over its kinds by time and electricity, then (6) N* = (Q + F + γ√F) / μ. `tasks`: Q + F by model.
 */
export function wantedServers(
  world: World,
  counts: readonly number[],
  tasks: readonly number[],
  price: number,
  options: LayoutOptions,
): number[][] {
  const [rows, columns] = [TASK_TYPES.length, world.kinds.length];
  const { slotS, useMax, meanWorkS, gamma, secondsPerUsd, madeOnly = false } = options;
  const mass = new Float64Array(rows);
  world.models.forEach(({ type }, m) => {
    mass[type] = (mass[type] ?? 0) + (tasks[m] ?? 0);
  });
  const margined = mass.map((count) => count + gamma * Math.sqrt(count));
  const cost = new Float64Array(rows * columns);
  const load = new Float64Array(rows * columns);
  for (let type = 0; type < rows; type++)
    for (let kind = 0; kind < columns; kind++) {
      const seconds = (world.kinds[kind]?.factor[type] ?? 1) * meanWorkS;
      const isMade = !madeOnly || world.kinds[kind]?.made === TASK_TYPES[type];
      const can = (counts[kind] ?? 0) > 0 && isMade && takesType(world, kind, type);
      const at = type * columns + kind;
      cost[at] = can ? seconds + secondsPerUsd * taskUsd(world, kind, seconds, price) : Number.POSITIVE_INFINITY;
      load[at] = seconds;
    }
  const capacity = Float64Array.from(counts, (count) => count * slotS * useMax);
  const problem: TransportProblem = { rows, columns, mass: margined, cost, load, capacity };
  const { shares } = smoothTransport(problem, byCapacity(problem), LAYOUT_SMOOTHNESS);
  return world.kinds.map((_, kind) =>
    world.models.map(({ type }, m) => {
      const part = (mass[type] ?? 0) > 0 ? (tasks[m] ?? 0) / (mass[type] ?? 1) : 0;
      const at = type * columns + kind;
      return ((margined[type] ?? 0) * part * (shares[at] ?? 0) * (load[at] ?? 0)) / (slotS * useMax);
    }),
  );
}

/**
 * Integer numbers of servers of one kind: their sum is rounded up, at most to the available ones; models by largest
 * remainder.
 */
export function wholeServers(wanted: readonly number[], available: number): number[] {
  const total = wanted.reduce((sum, one) => sum + one, 0);
  const servers = Math.min(available, Math.ceil(total - 1e-6));
  const scale = total > available && total > 0 ? available / total : 1;
  const counts = wanted.map((one) => Math.floor(one * scale));
  const byRest = wanted
    .map((one, m) => ({ m, rest: one * scale - Math.floor(one * scale) }))
    .sort((a, b) => b.rest - a.rest || a.m - b.m);
  let left = servers - counts.reduce((sum, count) => sum + count, 0);
  for (const { m, rest } of byRest) {
    if (left <= 0 || rest <= 1e-9) break;
    counts[m] = (counts[m] ?? 0) + 1;
    left--;
  }
  return counts;
}
