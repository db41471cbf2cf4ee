import {
  type IngressShares,
  type ModelShares,
  modelShares,
  PLAN_HOLDS_MAX_MS,
  type RegionPlan,
} from '../../shared/routing/region-shares.ts';

/**
 * The plan of regions that a gateway of this agent's institution reported last, for the region of this agent's ingress.
 * Its validity counts from its arrival, because clocks differ.
 */
export class IngressPlan {
  #plan: RegionPlan | undefined;

  /** Replaces the plan; undefined: the gateway has no valid plan. `now`: milliseconds since the epoch. */
  set(shares: IngressShares | undefined, now: number): void {
    this.#plan = shares && {
      planner: 'gateway',
      sequence: 0,
      expires_at: now + Math.min(shares.holds_ms, PLAN_HOLDS_MAX_MS),
      models: shares.models,
    };
  }

  /** The model's shares; undefined: no plan is valid, or it does not contain the model. */
  sharesOf(model: string, now: number): ModelShares | undefined {
    return modelShares(this.#plan, model, now);
  }
}
