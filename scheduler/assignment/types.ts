import type { GpuType } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';

/** Parallelism of one replica: tensor parallelism inside a node, pipeline stages across nodes. */
export interface Shape {
  tp: number;
  pp: number;
}

/** Rates of a replica of one shape. */
export interface ShapeRates {
  shape: Shape;
  /** Requests/s that add up if the replica serves several kinds, as `rates[kind]` (n_kj of OServe §4.2). */
  rates: readonly number[];
  /** Requests/s if the replica serves only this kind: in a pipeline more than in `rates`. */
  alone: readonly number[];
  /** Seconds of one response at a load of 70 %, as `latencyS[kind]`. */
  latencyS: readonly number[];
}

/** The GPUs of one model: all of one kind, in nodes of equal size. */
export interface Site {
  model: Model;
  gpu: GpuType;
  gpus: number;
  gpusPerNode: number;
}

/** Requests/s of each kind that each group gets, as `flow[group][kind]`. */
export interface Assignment {
  flow: number[][];
  /** Served requests/s of each kind. */
  served: number[];
  /** Load of the fullest group. If it is above 1, the group cannot keep up. */
  load: number;
  /** Load of each group. */
  loads: number[];
}
