import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import type { SimulatedPolicy, SimulatedReplica } from '../simulator/simulated-policies.ts';
import type { Demand, Placement, PlanOptions, Pool } from '../solver/planning-problem.ts';
import type { SolveReport } from '../solver/solve-plan.ts';

/** Replicas of one model on one pool with one parallelism, and their share of its traffic. */
export interface PlannedReplicas extends Placement {
  gpu: string;
  /** GPUs of one replica; absent: as many as its tensor parallelism. */
  gpus?: number;
  /** Share of the model's requests that these replicas get together: the router's weight. */
  share: number;
  /** Requests/s that these replicas get together. */
  rate: number;
  /** Requests/s that these replicas could serve together. */
  capacity: number;
  /** How the capacity was determined. */
  source: 'measured' | 'simulated' | 'estimated' | 'planner';
}

export interface PlannedModel {
  model: string;
  rate: number;
  /** Requests/s of the model that exceed the capacity of its replicas. */
  unserved: number;
  /** Mean seconds of a request in the plan; undefined: latency is not part of the objective. */
  latencyS: number | undefined;
  /** Maximum mean seconds of each of its replicas; `asked`: the operator set it. */
  target?: { latencyS: number; asked: boolean };
  /** Expected share of the time that at least one replica is available, 0 to 1. */
  availability?: number;
  alwaysOn?: boolean;
  /** Reasons for the model's placement, one sentence each. */
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
  /** Share of its demand that the worst served model's replicas can serve; above 1 there is headroom. */
  servedShare: number;
  usdPerHour: number;
  report: SolveReport | undefined;
  /** Set if the plan does not meet the requirements: names the constraint, and the smallest change that would help. */
  infeasible: string | undefined;
  /** Returns a routing policy for a model's replicas. Absent: simulations use the weighted policy. */
  pick?: (model: string) => (replicas: readonly SimulatedReplica[]) => SimulatedPolicy;
}

interface PlannerContext {
  catalogue: HardwareCatalogue;
  options: PlanOptions;
}

/**
 * Makes a plan from inventory, workload and current placements. A file for `--planner` exports such a function as its
 * default, and may import any module. The plan is checked against the inventory before a program acts on it.
 */
export type Planner = (
  inventory: readonly Pool[],
  workload: readonly Demand[],
  current: readonly Placement[],
  context: PlannerContext,
) => Promise<Plan>;
