import type { Catalogue } from '../catalogue/catalogue.ts';
import type { SimulatedPolicy, SimulatedReplica } from '../serving/policies.ts';
import type { SolveReport } from '../solver/plan.ts';
import type { Demand, Placement, PlanOptions, Pool } from '../solver/problem.ts';

/** Replicas of one model on one pool with one parallelism, and their share of its traffic. */
export interface PlannedReplicas extends Placement {
  gpu: string;
  /** Share of the model's requests that all of them together get: the router's weight. */
  share: number;
  /** Requests/s that they get, and that they could serve. */
  rate: number;
  capacity: number;
  /** How the capacity is known. */
  source: 'measured' | 'simulated' | 'estimated' | 'planner';
}

export interface PlannedModel {
  model: string;
  rate: number;
  /** Requests/s beyond what its replicas can serve. */
  unserved: number;
  /** Mean seconds, as planned with; absent under overload. */
  latencyS: number | undefined;
  /** Why it got what it got; each a sentence. */
  why: string[];
}

export interface PoolValue {
  pool: string;
  gpus: number;
  used: number;
  /** What one more GPU would change, in words. */
  oneMore: string;
}

/** What a planner decides. Everything but `placements` may be left to it: missing parts are shown as missing. */
export interface Plan {
  objective: string;
  placements: PlannedReplicas[];
  models: PlannedModel[];
  pools: PoolValue[];
  /** Request-weighted mean seconds of what is served; undefined under overload. */
  meanLatencyS: number | undefined;
  /** Served share of the demand of the worst served model, flat out. */
  servedShare: number;
  usdPerHour: number;
  report: SolveReport | undefined;
  /** Set when the demand cannot be served: which constraint binds and the smallest relaxation. */
  infeasible: string | undefined;
  /** The planner's own routing: overrides the weighted policy in simulations. */
  pick?: (model: string) => (replicas: readonly SimulatedReplica[]) => SimulatedPolicy;
}

interface PlannerContext {
  catalogue: Catalogue;
  options: PlanOptions;
}

/**
 * inventory, workload, current -> plan. A file given with `--planner` exports one as its default; it may import whatever it likes, and
 * what it returns is checked against the inventory before anything acts on it.
 */
export type Planner = (
  inventory: readonly Pool[],
  workload: readonly Demand[],
  current: readonly Placement[],
  context: PlannerContext,
) => Promise<Plan>;
