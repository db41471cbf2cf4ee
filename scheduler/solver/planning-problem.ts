import type { Calibration } from '../catalogue/calibration.ts';
import type { GpuType } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';
import type { Precision } from '../catalogue/precision.ts';
import type { Parallelism } from '../roofline/parallelism.ts';
import type { SimulatedEngineLimits } from '../serving/engine-limits.ts';
import type { LengthDistribution } from '../serving/length-distribution.ts';

/** Nodes of one kind. Replicas do not span nodes. */
export interface Pool {
  id: string;
  gpu: GpuType;
  nodes: number;
  gpusPerNode: number;
  /** True if each node runs one engine, on any number of its GPUs: an agent that waits for a deployment. */
  oneEngine?: boolean;
  /** absent: `stable`. Volatile nodes may be reclaimed at any time: preemptible jobs, workstations. */
  tier?: Tier;
  /** Share of the time that a node of it is available, 0 to 1; absent: that of its tier. */
  availability?: number;
  /** What the nodes' operators allow; absent: everything. */
  allows?: (model: string, spread: Parallelism) => boolean;
  /** Values for the templates of jobs that start replicas here. */
  values?: Record<string, string>;
}

export const TIERS = ['stable', 'volatile'] as const;
export type Tier = (typeof TIERS)[number];

export const poolGpus = (pool: Pool): number => pool.nodes * pool.gpusPerNode;

/** interactive: a person reads the response while it streams. batch: no person waits for a single response. */
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
  /** The allowed tensor parallelisms; absent: all that fit. */
  tp?: number[];
  /** Tried in addition to tensor parallelism, if the model allows it. */
  parallelism?: readonly ParallelismKind[];
  /** Selects the latency target if `latencyS` is absent; absent: `interactive`. */
  class?: RequestClass;
  /** Mean seconds from arrival to last token that each replica must keep to. */
  latencyS?: number;
  /** True if the model has a replica on a stable node at all times. */
  alwaysOn?: boolean;
  /** Observed rate of a replica, if the model's shape is unknown. Its capacity may be higher. */
  observed?: readonly ObservedCapacity[];
}

/** requests/s of a replica on `tp` GPUs. */
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
  /** Set if it is more than tensor parallelism. */
  spread?: Parallelism;
  replicas: number;
  /** True if this scheduler did not start it: it stays even if replicas may be reclaimed. */
  pinned?: boolean;
}

/** Measured requests/s of one replica: overrides the simulator. */
export interface MeasuredCapacity {
  model: string;
  gpu: string;
  tp: number;
  rate: number;
}

/** gpus: the fewest GPUs that keep the latency targets. cost: the lowest cost that does. */
export const OBJECTIVES = ['gpus', 'cost', 'latency', 'throughput'] as const;
type Objective = (typeof OBJECTIVES)[number];

export interface PlanOptions {
  objective: Objective;
  /** USD per hour of all replicas together. */
  budget?: number;
  /** True if running replicas may be stopped. The paper does not stop them. */
  reclaim: boolean;
  limits: SimulatedEngineLimits;
  calibration: Calibration;
  measured: readonly MeasuredCapacity[];
  /** Time limit of the solver, seconds. */
  timeLimitS: number;
  /** Relative gap at which the solver stops. */
  gap: number;
  /** Mean seconds that each replica of every model must keep to; overrides the models' targets. */
  latencyS?: number;
  seed: number;
  /** Called with each better solution while it solves. */
  progress?: (line: string) => void;
}

/**
 * requests/s of one replica and their mean seconds, with rates ascending from 0; `rate * latency` is convex in rate.
 */
export type Curve = readonly { rate: number; latencyS: number }[];

/** A way to run one replica of a model. */
export interface Option {
  demand: number;
  pool: number;
  tp: number;
  /** Set if it is more than tensor parallelism. */
  spread?: Parallelism;
  /** GPUs of a node that a replica takes. */
  gpus: number;
  /** Maximum requests/s of one replica. An estimate is never below a simulation's result. */
  capacity: number;
  /** Rate and mean latency of one replica. An estimated latency is never above a simulation's. */
  points: Curve;
  source: 'measured' | 'simulated' | 'estimated';
  /** True if `capacity` is the observed rate, bursts included. */
  observed?: true;
}

/** Replicas by option, in the order of the options. */
export type Counts = readonly number[];
