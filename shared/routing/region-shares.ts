/** Which share of a model's requests each region gets: a plan for the time until its expiry. */

/** Shares of one model by region; `''` is the region of nodes that name none. Shares need not sum to 1. */
export interface ModelShares {
  readonly shares: Readonly<Record<string, number>>;
  /** Where the share of a region goes that has no node now, by that region; absent: to the others in proportion to their shares. */
  readonly spill?: Readonly<Record<string, Readonly<Record<string, number>>>> | undefined;
}

export interface RegionPlan {
  /** Names the planner that holds the plan: another one's is refused until it expires. */
  readonly planner: string;
  /** Grows with each plan of that planner. */
  readonly sequence: number;
  /** Milliseconds since the epoch, by the clock of the gateway that took the plan. */
  readonly expires_at: number;
  readonly models: Readonly<Record<string, ModelShares>>;
}

/** Longest time that a plan may hold. Bounds what a planner that died, or a gateway whose clock was set back, can do. */
export const PLAN_HOLDS_MAX_MS = 30 * 60_000;
/** Bounds the snapshot, which carries the plan to every isolate. */
export const PLAN_MODELS_MAX = 500;
export const PLAN_REGIONS_MAX = 64;

/** The shares of a model now; undefined where no plan holds. An expiry too far ahead was written by a clock that has been set back since. */
export function sharesOf(plan: RegionPlan | undefined, model: string, now: number): ModelShares | undefined {
  if (plan === undefined || now >= plan.expires_at || plan.expires_at - now > PLAN_HOLDS_MAX_MS) return undefined;
  return Object.hasOwn(plan.models, model) ? plan.models[model] : undefined;
}

/**
 * Weights of the regions that have a node now, in their order. The share of a region that has none is spread by the plan's `spill` for it.
 * All 0: the plan says nothing of any of them.
 */
export function presentWeights({ shares, spill = {} }: ModelShares, present: readonly string[]): Float64Array {
  const here = new Set(present);
  const weights = Float64Array.from(present, (region) => shareOf(shares, region));
  const planned = weights.reduce((sum, one) => sum + one, 0);
  for (const lost of Object.keys(shares)) {
    const share = shareOf(shares, lost);
    if (here.has(lost) || share === 0) continue;
    const given = Object.hasOwn(spill, lost) ? (spill[lost] ?? {}) : {};
    const largest = Math.max(...present.map((region) => shareOf(given, region)));
    // Of the largest: a sum of large numbers has no bound.
    const parts = present.map((region) => (largest > 0 ? shareOf(given, region) / largest : 0));
    const total = parts.reduce((sum, one) => sum + one, 0);
    present.forEach((region, at) => {
      const part = total > 0 ? (parts[at] ?? 0) / total : planned > 0 ? shareOf(shares, region) / planned : 0;
      weights[at] = (weights[at] ?? 0) + share * part;
    });
  }
  return weights;
}

/** What is not a positive number counts as 0: no plan can make a weight that is none. */
export function shareOf(shares: Readonly<Record<string, number>>, region: string): number {
  const share = Object.hasOwn(shares, region) ? (shares[region] ?? 0) : 0;
  return Number.isFinite(share) && share > 0 ? share : 0;
}
