import type { Server } from '../simulator/server.ts';
import { TASK_TYPES } from '../world/tasks.ts';

/**
 * Lower bound of a forecast, as a share of recent arrivals, which also replace a value that is not a number: a forecast
 * that is ten times too low would send busy servers to sleep.
 */
const TRUST_LEAST = 0.7;

export function raiseToObserved(
  forecast: readonly (readonly number[])[],
  seen: readonly (readonly number[])[],
): number[][] {
  return seen.map((line, origin) =>
    line.map((count, model) => {
      const expected = forecast[origin]?.[model] ?? Number.NaN;
      return Number.isFinite(expected) ? Math.max(expected, TRUST_LEAST * count) : count;
    }),
  );
}

export function byType(models: readonly { type: number }[], line: readonly number[]): number[] {
  const sums = TASK_TYPES.map(() => 0);
  models.forEach(({ type }, m) => {
    sums[type] = (sums[type] ?? 0) + (line[m] ?? 0);
  });
  return sums;
}

export function countKinds(servers: readonly Server[], kinds: number): number[] {
  const counts = new Array<number>(kinds).fill(0);
  for (const { kind, alive } of servers) if (alive) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

export function useOf(servers: readonly Server[]): number {
  const awake = servers.filter((one) => one.open);
  return awake.length === 0 ? 0 : awake.filter((one) => one.running !== undefined).length / awake.length;
}
