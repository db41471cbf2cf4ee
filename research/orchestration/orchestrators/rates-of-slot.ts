import type { History } from '../../../scheduler/forecast/types.ts';

/** Requests/s of each kind over the last `slots` observed slots; 0 if no slot was observed yet. */
export function rates(history: History, slots: number): number[] {
  return history.counts.map((series) => {
    const seen = series.slice(-slots).filter(Number.isFinite);
    return seen.length === 0 ? 0 : seen.reduce((sum, count) => sum + count, 0) / (seen.length * history.slotS);
  });
}
