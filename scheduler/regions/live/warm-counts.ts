/**
 * Number of contexts of a model that each region keeps warm, by equation (6) of the paper TORTA: (F + γ√F)·s, where F
 * is the number of expected requests and s the share of a context's slot that a request needs. The number changes
 * gradually.
 */
import type { ObservedPlace } from './traffic-tracker.ts';

/** γ of equation (6): number of standard deviations above the mean arrivals. */
const GAMMA = 1;
/** Largest change of a region's count in one slot, as a share of the count; a change by one is always allowed. */
const CHANGE_MAX = 0.25;
/** Consecutive slots with a lower target before the first context ends, because a start costs minutes. */
const IDLE_SLOTS = 4;
const COUNT_MAX = 10_000;
/** A lower forecast, in requests per slot, counts as zero: it is only the decaying remainder of past demand. */
const REQUESTS_MIN = 0.01;

interface Kept {
  count: number;
  /** Consecutive slots in which the target was below the count. */
  idle: number;
}

export class WarmCounts {
  readonly #kept = new Map<string, Map<string, Kept>>();

  /**
   * Returns counts in the order of `places`. A region's first count is its current number of contexts. `secondsOfNode`:
   * seconds per slot for which a node is planned to be busy.
   */
  of(
    model: string,
    places: readonly ObservedPlace[],
    shares: readonly number[],
    expected: number,
    secondsOfNode: number,
  ): number[] {
    const known = this.#kept.get(model) ?? new Map<string, Kept>();
    this.#kept.set(model, known);
    const here = new Set(places.map(({ region }) => region));
    for (const region of known.keys()) if (!here.has(region)) known.delete(region);
    return places.map(({ region, replicas, serviceS, concurrency }, at) => {
      const requests = expected < REQUESTS_MIN ? 0 : expected * (shares[at] ?? 0);
      const servers = ((requests + GAMMA * Math.sqrt(requests)) * serviceS) / (secondsOfNode * concurrency);
      // A region with a share keeps at least one context.
      const wanted = Math.min(COUNT_MAX, Math.ceil(servers - 1e-6));
      const kept = known.get(region) ?? { count: replicas, idle: 0 };
      known.set(region, kept);
      const step = Math.max(1, Math.floor(kept.count * CHANGE_MAX));
      kept.idle = wanted < kept.count ? kept.idle + 1 : 0;
      if (wanted > kept.count) kept.count = Math.min(wanted, kept.count + step);
      else if (kept.idle > IDLE_SLOTS) kept.count = Math.max(wanted, kept.count - step);
      return kept.count;
    });
  }

  forget(model: string): void {
    this.#kept.delete(model);
  }
}
