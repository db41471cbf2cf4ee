/** Maximum delay by changing neighbors, counted from the first question that had to wait. */
const MAX_MS = 10_000;

/**
 * Decides whether a coordinator may let a node read the source. Nodes that start together find each other within
 * `settleMs` after the last change of the nearby nodes; earlier, several of them would read the source.
 */
export class SettleDelay {
  readonly #settleMs: number;
  /** Since when questions about each shard have had to wait. Bounded by the number of shards. */
  readonly #waitingSince = new Map<string, number>();

  constructor(settleMs: number) {
    this.#settleMs = settleMs;
  }

  /**
   * True if the nearby nodes have not changed for `settleMs`, or if questions about the shard have waited for 10 s,
   * because nodes join and leave all the time.
   * @param now milliseconds of a monotonic clock, as `changedAt`, the time of the last change
   */
  isSettled(shard: string, now: number, changedAt: number): boolean {
    if (now - changedAt >= this.#settleMs) {
      this.#waitingSince.delete(shard);
      return true;
    }
    const since = this.#waitingSince.get(shard) ?? now;
    this.#waitingSince.set(shard, since);
    return now - since >= MAX_MS;
  }
}
