import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import type { SimulatedPolicy, SimulatedReplica } from '../serving/policies.ts';
import type { SolveReport } from '../solver/plan.ts';
import type { Demand, Placement, PlanOptions, Pool } from '../solver/problem.ts';

/** Replicas of one model on one pool with one parallelism, and their share of its traffic. */
export interface PlannedReplicas extends Placement {
  gpu: string;
  /** That one replica takes; as many as its tensor parallelism where a planner does not say. */
  gpus?: number;
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
  /** Mean seconds, as planned with; absent where latency plays no part. */
  latencyS: number | undefined;
  /** Mean seconds that each of its replicas keeps, and whether a person asked for them. */
  target?: { latencyS: number; asked: boolean };
  /** Share of the time that at least one replica is expected to be there, 0 to 1. */
  availability?: number;
  alwaysOn?: boolean;
  /** Why it got what it got; each a sentence. */
  why: string[];
}

export interface PoolValue {
  pool: string;
  gpu: string;
  gpus: number;
  used: number;
  /** What one more GPU would bring, in words. */
  oneMore: string;
}

/** What a planner decides. Everything but `placements` may be left to it: missing parts are shown as missing. */
export interface Plan {
  objective: string;
  placements: PlannedReplicas[];
  models: PlannedModel[];
  pools: PoolValue[];
  /** Request-weighted mean seconds of what is served; undefined where latency plays no part. */
  meanLatencyS: number | undefined;
  /** Share of the demand of the worst served model that its replicas can serve; above 1 there is room. */
  servedShare: number;
  usdPerHour: number;
  report: SolveReport | undefined;
  /** Set when the plan falls short of what was asked: what is in the way, and the least that would help. */
  infeasible: string | undefined;
  /** The planner's own routing: overrides the weighted policy in simulations. */
  pick?: (model: string) => (replicas: readonly SimulatedReplica[]) => SimulatedPolicy;
}

interface PlannerContext {
  catalogue: HardwareCatalogue;
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
