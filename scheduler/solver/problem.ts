import type { Calibration } from '../catalogue/calibration.ts';
import type { Gpu } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';
import type { Precision } from '../catalogue/precision.ts';
import type { Parallelism } from '../roofline/parallelism.ts';
import type { LengthDistribution } from '../serving/lengths.ts';
import type { SimulatedEngineLimits } from '../serving/limits.ts';

/** Nodes of one kind. Replicas do not span nodes. */
export interface Pool {
  id: string;
  gpu: Gpu;
  nodes: number;
  gpusPerNode: number;
  /** Each node runs one engine, on however many of its GPUs: an agent that waits for a deployment. */
  oneEngine?: boolean;
  /** `stable` where absent. Volatile nodes may be taken back at any time: pre-emptible jobs, workstations. */
  tier?: Tier;
  /** Share of the time that a node of it is there, 0 to 1; that of its tier where absent. */
  availability?: number;
  /** What the nodes' operators allow; everything where absent. */
  allows?: (model: string, spread: Parallelism) => boolean;
  /** For the templates of jobs that start replicas here. */
  values?: Record<string, string>;
}

export const TIERS = ['stable', 'volatile'] as const;
export type Tier = (typeof TIERS)[number];

export const poolGpus = (pool: Pool): number => pool.nodes * pool.gpusPerNode;

/** interactive: a person reads along. batch: no person waits for a single answer. */
export const CLASSES = ['interactive', 'batch'] as const;
type RequestClass = (typeof CLASSES)[number];

/** What people ask of one model. */
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
  /** Only these tensor parallelisms; all that fit where absent. */
  tp?: number[];
  /** Tried beside tensor parallelism, where the model allows it. */
  parallelism?: readonly ParallelismKind[];
  /** Which latency target holds where none is given; `interactive` where absent. */
  class?: RequestClass;
  /** Mean seconds from arrival to last token that each replica must keep. */
  latencyS?: number;
  /** Has a replica on a stable node at all times. */
  alwaysOn?: boolean;
  /** Of a model whose shape is not known: what one replica was seen to serve. It may be able to do more. */
  observed?: readonly ObservedCapacity[];
}

/** requests/s that one replica on `tp` GPUs served. */
export interface ObservedCapacity {
  gpu: string;
  tp: number;
  rate: number;
}

/** What a workload may ask to be tried beside tensor parallelism. */
export const PARALLELISM_KINDS = ['pipeline', 'data', 'expert', 'sequence', 'disaggregated'] as const;
export type ParallelismKind = (typeof PARALLELISM_KINDS)[number];

/** Replicas of one model on one pool with one parallelism. */
export interface Placement {
  model: string;
  pool: string;
  tp: number;
  /** Where it is more than tensor parallelism. */
  spread?: Parallelism;
  replicas: number;
  /** Not started by this scheduler: it stays even where replicas may be reclaimed. */
  pinned?: boolean;
}

/** requests/s of one replica, measured: overrides the simulator. */
export interface MeasuredCapacity {
  model: string;
  gpu: string;
  tp: number;
  rate: number;
}

/** gpus: the fewest GPUs that keep the latency targets. cost: the same in money. */
export const OBJECTIVES = ['gpus', 'cost', 'latency', 'throughput'] as const;
type Objective = (typeof OBJECTIVES)[number];

export interface PlanOptions {
  objective: Objective;
  /** USD per hour of all replicas together. */
  budget?: number;
  /** Replicas that run may be stopped. The paper leaves them alone. */
  reclaim: boolean;
  limits: SimulatedEngineLimits;
  calibration: Calibration;
  measured: readonly MeasuredCapacity[];
  /** The solver's, seconds. */
  timeLimitS: number;
  /** Relative gap at which the solver stops. */
  gap: number;
  /** Mean seconds that each replica of every model must keep; over the models' own targets. */
  latencyS?: number;
  seed: number;
  /** Told of each better solution while it solves. */
  progress?: (line: string) => void;
}

/** requests/s of one replica and their mean seconds, rate ascending from 0; `rate * latency` is convex in rate. */
export type Curve = readonly { rate: number; latencyS: number }[];

/** A way to run one replica of a model. */
export interface Option {
  demand: number;
  pool: number;
  tp: number;
  /** Where it is more than tensor parallelism. */
  spread?: Parallelism;
  /** That one replica takes of a node. */
  gpus: number;
  /** Requests/s of one replica at most. An estimate is never below what a simulation finds. */
  capacity: number;
  /** Rate and mean latency of one replica. An estimate is never above what a simulation finds. */
  points: Curve;
  source: 'measured' | 'simulated' | 'estimated';
  /** `capacity` is what it was seen to do, bursts included. */
  observed?: true;
}

/** Replicas by option, in the order of the options. */
export type Counts = readonly number[];
