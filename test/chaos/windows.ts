/** Tokens per second against the number of serving replicas, in windows of equal length. */

export interface Window {
  /** Seconds since the part began. */
  at: number;
  /** Replicas that the gateway listed as serving, on average. */
  serving: number;
  tokensPerSecond: number;
  /**
   * False at the start of the load, and in the windows in which the number of replicas changed and their successors:
   * clients then start, or streams move to other nodes, and both numbers are means of a before and an after.
   */
  settled: boolean;
}

/** Per second: the numbers of serving replicas that were seen, and the tokens that clients got. */
export interface Second {
  servings: readonly number[];
  tokens: number;
}

/** `size`: seconds of a window. Seconds that fill no window are left out. */
export function windowsOf(seconds: readonly Second[], size: number): Window[] {
  const windows: Window[] = [];
  let before: number | undefined;
  for (let at = 0; at + size <= seconds.length; at += size) {
    const own = seconds.slice(at, at + size);
    const seen = own.flatMap(({ servings }) => servings);
    const tokens = own.reduce((sum, second) => sum + second.tokens, 0);
    const [first] = seen;
    const constant = seen.every((serving) => serving === first) ? first : undefined;
    const settled = constant !== undefined && constant === before;
    windows.push({ at, serving: mean(seen), tokensPerSecond: tokens / size, settled });
    before = constant;
  }
  return windows;
}

/** Pearson's r of tokens per second against replicas, and the slope of the line, of the settled windows. */
export function line(windows: readonly Window[]): { pearson: number; tokensPerReplica: number } {
  const settled = windows.filter((window) => window.settled);
  const x = mean(settled.map(({ serving }) => serving));
  const y = mean(settled.map(({ tokensPerSecond }) => tokensPerSecond));
  let [xx, xy, yy] = [0, 0, 0];
  for (const { serving, tokensPerSecond } of settled) {
    xx += (serving - x) ** 2;
    xy += (serving - x) * (tokensPerSecond - y);
    yy += (tokensPerSecond - y) ** 2;
  }
  return { pearson: xy / Math.sqrt(xx * yy), tokensPerReplica: xy / xx };
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
