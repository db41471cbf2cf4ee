/** How many contexts of a model each region keeps warm: (6) N* = (F + γ√F)·s, with gradual change. */
import type { ObservedPlace } from './observed.ts';

/** γ of (6): standard deviations of the arrivals above their mean. */
const GAMMA = 1;
/** Change of a region's count in one slot, as a share of it; at least one. */
const CHANGE_MAX = 0.25;
/** Slots that fewer are wanted before the first goes to sleep: a start costs minutes. */
const IDLE_SLOTS = 4;
const COUNT_MAX = 10_000;
/** Fewer requests in a slot are what is left of a forecast whose requests have ended. */
const REQUESTS_LEAST = 0.01;

interface Kept {
  count: number;
  /** Slots in a row that fewer were wanted. */
  idle: number;
}

export class WarmCounts {
  readonly #kept = new Map<string, Map<string, Kept>>();

  /** `secondsOfNode`: of a slot that one place of a node is planned to work. In the order of `places`; the first count is what is there. */
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
      const requests = expected < REQUESTS_LEAST ? 0 : expected * (shares[at] ?? 0);
      const servers = ((requests + GAMMA * Math.sqrt(requests)) * serviceS) / (secondsOfNode * concurrency);
      // Where requests go one context stays, however few they are.
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
