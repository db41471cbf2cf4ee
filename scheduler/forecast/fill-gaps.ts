/**
 * Fills slots that were not observed with the last count before them or, if there is none, with the first count after
 * them. Zeros would teach a forecaster that load vanishes whenever the gateway's records have a gap.
 */
export function withoutGaps(counts: readonly number[]): number[] {
  let last = counts.find((count) => Number.isFinite(count)) ?? 0;
  return counts.map((count) => {
    if (Number.isFinite(count)) last = Math.max(0, count);
    return last;
  });
}

export const hasGaps = (counts: readonly number[]): boolean => counts.some((count) => !Number.isFinite(count));
