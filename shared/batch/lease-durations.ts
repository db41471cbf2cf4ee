/** Minimum number of finished leases for an estimate. */
const LEASES_MIN = 5;
/** Maximum number of finished leases from which durations are estimated. */
const LEASES_MAX = 64;

/** Estimates how long leases of a batch take, from those that finished. Leases have unequal numbers of lines. */
export class LeaseDurations {
  /** At most LEASES_MAX. */
  readonly #finished: { ms: number; lineMs: number }[] = [];

  add(ms: number, lines: number): void {
    this.#finished.push({ ms, lineMs: ms / Math.max(1, lines) });
    if (this.#finished.length > LEASES_MAX) this.#finished.shift();
  }

  /**
   * Returns the usual milliseconds of a lease by its number of lines: the median time of a line for each. An engine
   * runs lines at the same time, so that a few take as long as many. Therefore no lease is estimated to be shorter than
   * all but a quarter of the finished ones. Undefined: too few leases have finished.
   */
  estimate(): ((lines: number) => number) | undefined {
    if (this.#finished.length < LEASES_MIN) return undefined;
    const lineMs = quantile(
      0.5,
      this.#finished.map((one) => one.lineMs),
    );
    const leastMs = quantile(
      0.25,
      this.#finished.map(({ ms }) => ms),
    );
    return (lines) => Math.max(leastMs, lineMs * lines);
  }
}

function quantile(share: number, values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length * share)] ?? 0;
}
