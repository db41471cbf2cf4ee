/** The time in which a batch must end, as in OpenAI's `completion_window`. */

const HOUR_S = 3_600;
const DAY_S = 24 * HOUR_S;
/** Bounds of a window. Input files are kept for 30 days. */
const WINDOW_S = { least: HOUR_S, most: 30 * DAY_S };

/** Parses a window such as `24h` or `7d`, from an hour to 30 days. Returns seconds; undefined for any other text. */
export function readCompletionWindow(text: unknown): number | undefined {
  const [, count, unit] = typeof text === 'string' ? (/^([1-9]\d{0,2})([hd])$/.exec(text) ?? []) : [];
  if (count === undefined) return undefined;
  const seconds = Number(count) * (unit === 'd' ? DAY_S : HOUR_S);
  return seconds >= WINDOW_S.least && seconds <= WINDOW_S.most ? seconds : undefined;
}

/** Returns the text of a window. A day is `24h`, as OpenAI writes it. */
export function completionWindowText(seconds: number): string {
  const isDays = seconds % DAY_S === 0 && seconds !== DAY_S;
  return isDays ? `${seconds / DAY_S}d` : `${Math.max(1, Math.round(seconds / HOUR_S))}h`;
}
