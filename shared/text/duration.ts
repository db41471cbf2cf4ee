/** Parses and formats durations in flags, configuration files and requirements. */

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Longest delay of a timer, 2^31 - 1 ms. With a longer delay `setTimeout` fires immediately. */
export const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * Parses `90s`, `10m`, `1h30m`, `500ms` or `0` to milliseconds; undefined if the text is not a duration. A number
 * without a unit is refused, because Slurm reads `--time=60` as minutes and `--signal=@60` as seconds.
 */
export function durationMs(text: string): number | undefined {
  if (text === '0') return 0;
  if (!/^(?:\d{1,15}(?:\.\d{1,9})?(?:ms|[smhd]))+$/.test(text)) return undefined;
  let total = 0;
  for (const [, amount, unit = ''] of text.matchAll(/(\d+(?:\.\d+)?)(ms|[smhd])/g))
    total += Number(amount) * (UNIT_MS[unit] ?? 0);
  return Math.round(total);
}
