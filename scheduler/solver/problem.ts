import type { Calibration } from '../catalogue/calibration.ts';
import type { Gpu } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';
import type { Precision } from '../catalogue/precision.ts';
import type { Lengths } from '../serving/lengths.ts';
import type { EngineLimits } from '../serving/limits.ts';

/** Nodes of one kind. Replicas do not span nodes. */
export interface Pool {
  id: string;
  gpu: Gpu;
  nodes: number;
  gpusPerNode: number;
  /** Each node runs one engine, on however many of its GPUs: an agent that waits for a deployment. */
  oneEngine?: boolean;
  /** What the nodes' operators allow; everything where absent. */
  allows?: (model: string, tp: number) => boolean;
  /** For the templates of jobs that start replicas here. */
  values?: Record<string, string>;
}

export const poolGpus = (pool: Pool): number => pool.nodes * pool.gpusPerNode;

/** What people ask of one model. */
export interface Demand {
  model: Model;
  /** Requests/s. */
  rate: number;
  /** Coefficient of variation of the gaps between arrivals: 1 is Poisson. */
  cv: number;
  input: Lengths;
  output: Lengths;
  weights: Precision;
  kv: Precision;
  /** Only these tensor parallelisms; all that fit where absent. */
  tp?: number[];
}

/** Replicas of one model on one pool with one parallelism. */
export interface Placement {
  model: string;
  pool: string;
  tp: number;
  replicas: number;
  /** Somebody else's: stays even where replicas may be reclaimed. */
  pinned?: boolean;
}

/** requests/s of one replica, measured: overrides the simulator. */
export interface MeasuredCapacity {
  model: string;
  gpu: string;
  tp: number;
  rate: number;
}

export const OBJECTIVES = ['latency', 'throughput', 'cost'] as const;
export type Objective = (typeof OBJECTIVES)[number];

export interface PlanOptions {
  objective: Objective;
  /** USD per hour of all replicas together. */
  budget?: number;
  /** Replicas that run may be stopped. The paper leaves them alone. */
  reclaim: boolean;
  limits: EngineLimits;
  calibration: Calibration;
  measured: readonly MeasuredCapacity[];
  /** The solver's, seconds. */
  timeLimitS: number;
  /** Relative gap at which the solver stops. */
  gap: number;
  /** With `cost`: mean latency of each model at most this, seconds. */
  latencyS?: number;
  seed: number;
  /** Told of each better solution while it solves. */
  progress?: (line: string) => void;
}

/** A way to run one replica of a model. */
export interface Option {
  demand: number;
  pool: number;
  tp: number;
  /** Requests/s of one replica at most. */
  capacity: number;
  /** Rate and mean latency of one replica, rate ascending from 0; `rate * latency` is convex in rate. */
  points: { rate: number; latencyS: number }[];
  source: 'measured' | 'simulated' | 'estimated';
}

/** Replicas by option, in the order of the options. */
export type Counts = readonly number[];
