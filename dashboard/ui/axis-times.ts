/** Labels of a time axis. */

/** Hours are 0 to 23, as in logs. */
const DAY = { hourCycle: 'h23' } as const;
const MINUTE_SECONDS = 60;
const DAY_SECONDS = 86_400;

/**
 * A label for each time, which is in seconds since 1970. `step`: seconds between two of them. The first label and each
 * label of a new day also have the date, on a second line.
 */
export function axisTimes(times: readonly number[], step: number): string[] {
  const format = (time: number, options: Intl.DateTimeFormatOptions) =>
    new Date(time * 1000).toLocaleString(undefined, options);
  const date = (time: number) => format(time, { month: 'short', day: 'numeric' });
  if (step >= DAY_SECONDS) return times.map(date);
  const seconds = step < MINUTE_SECONDS ? ({ second: '2-digit' } as const) : {};
  return times.map((time, n) => {
    const clock = format(time, { hour: '2-digit', minute: '2-digit', ...seconds, ...DAY });
    const before = times[n - 1];
    return before !== undefined && date(before) === date(time) ? clock : `${clock}\n${date(time)}`;
  });
}
