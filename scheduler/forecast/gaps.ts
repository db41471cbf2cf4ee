/**
 * Fills slots that were not observed with the last observed count before them, or the first one after them if there is
 * none before. Zeros would teach a forecaster that load vanishes whenever the gateway's records have a gap.
 */
export function withoutGaps(counts: readonly number[]): number[] {
  let last = counts.find((count) => Number.isFinite(count)) ?? 0;
  return counts.map((count) => {
    if (Number.isFinite(count)) last = Math.max(0, count);
    return last;
  });
}

export const hasGaps = (counts: readonly number[]): boolean => counts.some((count) => !Number.isFinite(count));
