import type { History } from '../../scheduler/forecast/types.ts';
import type { Requests } from '../../scheduler/simulator/request-arrivals.ts';

/** Most slots of one history: 100 days of minutes. */
const SLOTS_MAX = 144_000;

/**
 * Counts requests per kind and slot of `slotS` seconds, from the first slot to `endS`. `kinds[i]`: kind of request i.
 */
export function countByKind(
  requests: Requests,
  kinds: ArrayLike<number>,
  names: readonly string[],
  { slotS, endS }: { slotS: number; endS: number },
): History {
  const slots = Math.min(SLOTS_MAX, Math.ceil(endS / slotS));
  const counts = names.map(() => new Array<number>(slots).fill(0));
  for (let i = 0; i < requests.count; i++) {
    const series = counts[kinds[i] ?? 0];
    const slot = Math.floor((requests.arrival[i] ?? 0) / slotS);
    if (series !== undefined && slot >= 0 && slot < slots) series[slot] = (series[slot] ?? 0) + 1;
  }
  return { names, counts, slotS };
}
