/** A plan that sets how a model's requests are divided among regions, valid until it expires. */

/** Shares of one model by region; `''` is the region of nodes that publish none. Shares need not sum to 1. */
export interface ModelShares {
  readonly shares: Readonly<Record<string, number>>;
  /**
   * For each region, the regions that receive its share while it has no node. Absent: the share goes to the other
   * regions in proportion to their shares.
   */
  readonly spill?: Readonly<Record<string, Readonly<Record<string, number>>>> | undefined;
}

/** Shares of one model, and other shares for requests from some regions. */
interface ModelPlan extends ModelShares {
  /** By region of the gateway or ingress that routes the request; a region that is not named uses the shares above. */
  readonly origins?: Readonly<Record<string, ModelShares>> | undefined;
}

export interface RegionPlan {
  /** Name of the planner that owns the plan. Until the plan expires, plans of other planners are refused. */
  readonly planner: string;
  /** Increases with each plan of the same planner. */
  readonly sequence: number;
  /** Milliseconds since the epoch, by the clock of the gateway that accepted the plan. */
  readonly expires_at: number;
  readonly models: Readonly<Record<string, ModelPlan>>;
}

/**
 * Longest validity of a plan. It limits how long a plan applies after its planner died, or after the gateway's clock
 * was set back.
 */
export const PLAN_HOLDS_MAX_MS = 30 * 60_000;
/** Maximum number of models in a plan. It bounds the snapshot, which brings the plan to every isolate. */
export const PLAN_MODELS_MAX = 500;
export const PLAN_REGIONS_MAX = 64;
/**
 * Maximum number of regions with their own shares of a model: regions of gateway processes, and regions with ingresses.
 */
export const PLAN_ORIGINS_MAX = 16;

/**
 * The model's shares at `now` for requests that are routed in the region `origin`; undefined if no plan is valid. A
 * plan that expires later than PLAN_HOLDS_MAX_MS from now was accepted before the clock was set back, so it is ignored.
 */
export function modelShares(
  plan: RegionPlan | undefined,
  model: string,
  now: number,
  origin?: string,
): ModelShares | undefined {
  if (plan === undefined || now >= plan.expires_at || plan.expires_at - now > PLAN_HOLDS_MAX_MS) return undefined;
  const all = Object.hasOwn(plan.models, model) ? plan.models[model] : undefined;
  if (origin === undefined || all?.origins === undefined || !Object.hasOwn(all.origins, origin)) return all;
  return all.origins[origin];
}

/** The part of a plan that an agent's ingress needs: the shares for requests that are routed in its region. */
export interface IngressShares {
  /** Milliseconds for which the shares are valid from now, because clocks differ. */
  readonly holds_ms: number;
  readonly models: Readonly<Record<string, ModelShares>>;
}

/** Maximum length of `IngressShares` as JSON: an agent reads at most 64 KiB of an answer. */
const INGRESS_SHARES_CHARS_MAX = 32 * 1024;

/**
 * The shares for ingresses in the region `origin`; undefined if no plan is valid. Models that do not fit in the maximum
 * length are left out: their requests are routed by policy.
 */
export function ingressShares(plan: RegionPlan | undefined, origin: string, now: number): IngressShares | undefined {
  const models: Record<string, ModelShares> = {};
  let room = INGRESS_SHARES_CHARS_MAX;
  for (const model of Object.keys(plan?.models ?? {})) {
    const own = modelShares(plan, model, now, origin);
    if (own === undefined) continue;
    const { shares, spill } = own;
    const part: ModelShares = spill === undefined ? { shares } : { shares, spill };
    room -= JSON.stringify({ [model]: part }).length;
    if (room < 0) break;
    models[model] = part;
  }
  return plan === undefined || Object.keys(models).length === 0
    ? undefined
    : { holds_ms: plan.expires_at - now, models };
}

/**
 * Weights of the regions in `present`, in the same order. `present` are the regions with candidates. The share of any
 * other region goes to the regions that the plan's `spill` names for it; if it names none of `present`, to all of them
 * in proportion to their shares. All weights are 0 if the plan mentions none of these regions.
 */
export function availableWeights({ shares, spill = {} }: ModelShares, present: readonly string[]): Float64Array {
  const here = new Set(present);
  const weights = Float64Array.from(present, (region) => positiveShare(shares, region));
  const planned = weights.reduce((sum, one) => sum + one, 0);
  for (const lost of Object.keys(shares)) {
    const share = positiveShare(shares, lost);
    if (here.has(lost) || share === 0) continue;
    const given = Object.hasOwn(spill, lost) ? (spill[lost] ?? {}) : {};
    const largest = Math.max(...present.map((region) => positiveShare(given, region)));
    // Each share is divided by the largest one, because the sum of large numbers could overflow.
    const parts = present.map((region) => (largest > 0 ? positiveShare(given, region) / largest : 0));
    const total = parts.reduce((sum, one) => sum + one, 0);
    present.forEach((region, at) => {
      const part = total > 0 ? (parts[at] ?? 0) / total : planned > 0 ? positiveShare(shares, region) / planned : 0;
      weights[at] = (weights[at] ?? 0) + share * part;
    });
  }
  return weights;
}

/** Anything but a positive number counts as 0, so a plan cannot produce an invalid weight. */
function positiveShare(shares: Readonly<Record<string, number>>, region: string): number {
  const share = Object.hasOwn(shares, region) ? (shares[region] ?? 0) : 0;
  return Number.isFinite(share) && share > 0 ? share : 0;
}
