import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import type { SimulatedPolicy, SimulatedReplica } from '../serving/simulated-policies.ts';
import type { Demand, Placement, PlanOptions, Pool } from '../solver/planning-problem.ts';
import type { SolveReport } from '../solver/solve-plan.ts';

/** Replicas of one model on one pool with one parallelism, and their share of its traffic. */
export interface PlannedReplicas extends Placement {
  gpu: string;
  /** GPUs of one replica; absent: its tensor parallelism. */
  gpus?: number;
  /** Share of the model's requests that all of these replicas together get: the router's weight. */
  share: number;
  /** Requests/s that they get, and that they could serve. */
  rate: number;
  capacity: number;
  /** Source of the capacity. */
  source: 'measured' | 'simulated' | 'estimated' | 'planner';
}

export interface PlannedModel {
  model: string;
  rate: number;
  /** Requests/s beyond the capacity of its replicas. */
  unserved: number;
  /** Mean seconds that the plan assumes; undefined: latency is not part of the objective. */
  latencyS: number | undefined;
  /** Mean seconds that each of its replicas keeps to, and whether the operator set the target. */
  target?: { latencyS: number; asked: boolean };
  /** Share of the time that at least one replica is expected to be available, 0 to 1. */
  availability?: number;
  alwaysOn?: boolean;
  /** Reasons for its placement, a sentence each. */
  why: string[];
}

export interface PoolValue {
  pool: string;
  gpu: string;
  gpus: number;
  used: number;
  /** The benefit of one more GPU, as text. */
  oneMore: string;
}

/** The output of a planner. Only `placements` is required: missing parts are shown as missing. */
export interface Plan {
  objective: string;
  placements: PlannedReplicas[];
  models: PlannedModel[];
  pools: PoolValue[];
  /** Mean seconds of served requests, weighted by requests; undefined: latency is not part of the objective. */
  meanLatencyS: number | undefined;
  /** Share of the demand of the worst served model that its replicas can serve; above 1 there is headroom. */
  servedShare: number;
  usdPerHour: number;
  report: SolveReport | undefined;
  /** Set if the plan falls short of the requirements: the constraint, and the smallest change that would help. */
  infeasible: string | undefined;
  /** The planner's routing: overrides the weighted policy in simulations. */
  pick?: (model: string) => (replicas: readonly SimulatedReplica[]) => SimulatedPolicy;
}

interface PlannerContext {
  catalogue: HardwareCatalogue;
  options: PlanOptions;
}

/**
 * inventory, workload, current -> plan. A file given with `--planner` exports one as its default. It may import any
 * module. Its result is checked against the inventory before anything acts on it.
 */
export type Planner = (
  inventory: readonly Pool[],
  workload: readonly Demand[],
  current: readonly Placement[],
  context: PlannerContext,
) => Promise<Plan>;
