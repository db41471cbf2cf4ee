import type { Calibration } from '../catalogue/calibration.ts';
import type { GpuType } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';
import type { Precision } from '../catalogue/precision.ts';
import type { Parallelism } from '../roofline/parallelism.ts';
import type { SimulatedEngineLimits } from '../simulator/engine-limits.ts';
import type { LengthDistribution } from '../simulator/length-distribution.ts';

/** Nodes of one kind. Replicas do not span nodes. */
export interface Pool {
  id: string;
  gpu: GpuType;
  nodes: number;
  gpusPerNode: number;
  /** True if each node runs one engine, on any number of its GPUs: an agent that waits for a deployment. */
  oneEngine?: boolean;
  /** Absent: `stable`. Volatile nodes may be taken away at any time: preemptible jobs, workstations. */
  tier?: Tier;
  /** Share of the time that a node of the pool is available, 0 to 1; absent: that of its tier. */
  availability?: number;
  /** Whether the nodes' operators allow a model with a parallelism; absent: they allow everything. */
  allows?: (model: string, spread: Parallelism) => boolean;
  /** Values of placeholders in the templates of jobs that start replicas here. */
  values?: Record<string, string>;
}

export const TIERS = ['stable', 'volatile'] as const;
export type Tier = (typeof TIERS)[number];

export const poolGpus = (pool: Pool): number => pool.nodes * pool.gpusPerNode;

/** interactive: a person reads the response while it streams. batch: no person waits for a response. */
export const CLASSES = ['interactive', 'batch'] as const;
type RequestClass = (typeof CLASSES)[number];

/** The demand for one model. */
export interface Demand {
  model: Model;
  /** Requests/s. */
  rate: number;
  /** Coefficient of variation of the gaps between arrivals: 1 is Poisson. */
  cv: number;
  input: LengthDistribution;
  output: LengthDistribution;
  weights: Precision;
  kv: Precision;
  /** Tensor parallelisms that are allowed; absent: all that fit. */
  tp?: number[];
  /** Kinds of parallelism to try in addition to tensor parallelism, if the model allows them. */
  parallelism?: readonly ParallelismKind[];
  /** Determines the latency target if there is no `latencyS`. Default: `interactive`. */
  class?: RequestClass;
  /** Maximum mean seconds from arrival to last token of each replica. */
  latencyS?: number;
  /** True if the model has a replica on a stable node at all times. */
  alwaysOn?: boolean;
  /** Observed rates of replicas, for a model of unknown shape. The capacity may be higher than the observed rate. */
  observed?: readonly ObservedCapacity[];
}

/** Observed requests/s of a replica on `tp` GPUs. */
export interface ObservedCapacity {
  gpu: string;
  tp: number;
  rate: number;
}

/** Kinds of parallelism that a workload may request in addition to tensor parallelism. */
export const PARALLELISM_KINDS = ['pipeline', 'data', 'expert', 'sequence', 'disaggregated'] as const;
export type ParallelismKind = (typeof PARALLELISM_KINDS)[number];

/** Replicas of one model on one pool with one parallelism. */
export interface Placement {
  model: string;
  pool: string;
  tp: number;
  /** Full parallelism, if it is more than tensor parallelism. */
  spread?: Parallelism;
  replicas: number;
  /** True if this scheduler did not start the replicas. A plan keeps them even if replicas may be reclaimed. */
  pinned?: boolean;
}

/** Measured requests/s of one replica: overrides the simulator. */
export interface MeasuredCapacity {
  model: string;
  gpu: string;
  tp: number;
  rate: number;
}

/** gpus: the fewest GPUs that keep the latency targets. cost: the lowest cost that keeps them. */
export const OBJECTIVES = ['gpus', 'cost', 'latency', 'throughput'] as const;
type Objective = (typeof OBJECTIVES)[number];

export interface PlanOptions {
  objective: Objective;
  /** Maximum USD per hour of all replicas together. */
  budget?: number;
  /** True if running replicas may be stopped. OpenTela's paper does not stop them. */
  reclaim: boolean;
  limits: SimulatedEngineLimits;
  calibration: Calibration;
  measured: readonly MeasuredCapacity[];
  /** Time limit of the solver, seconds. */
  timeLimitS: number;
  /** The solver stops when the plan is within this relative gap of the bound. */
  gap: number;
  /** Maximum mean seconds of each replica of every model; overrides the models' targets. */
  latencyS?: number;
  seed: number;
  /** Called with a line about each better solution. */
  progress?: (line: string) => void;
}

/**
 * Mean latency of one replica by requests/s, in ascending order of rate from 0; `rate * latency` is convex in the rate.
 */
export type Curve = readonly { rate: number; latencyS: number }[];

/** A way to run one replica of a model. */
export interface Option {
  demand: number;
  pool: number;
  tp: number;
  /** Full parallelism, if it is more than tensor parallelism. */
  spread?: Parallelism;
  /** GPUs of a node that a replica takes. */
  gpus: number;
  /** Maximum requests/s of one replica. An estimate is at least the result of a simulation. */
  capacity: number;
  /** Mean latency of one replica by rate. An estimated latency is at most that of a simulation. */
  points: Curve;
  source: 'measured' | 'simulated' | 'estimated';
  /** True if `capacity` is an observed rate, which includes bursts. */
  observed?: true;
}

/** Number of replicas of each option, in the order of the options. */
export type Counts = readonly number[];
