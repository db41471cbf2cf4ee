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
  /** `rates[kind]`: requests/s if it served only this kind (n_kj of OServe §4.2). */
  rates: readonly number[];
  /** `latencyS[kind]`: seconds of one response at a load of 70 %. */
  latencyS: readonly number[];
}

/** The GPUs of one model: equal ones, in nodes. */
export interface Site {
  model: Model;
  gpu: GpuType;
  gpus: number;
  gpusPerNode: number;
}

/** Flow of each kind to each group, requests/s: `flow[group][kind]`. */
export interface Assignment {
  flow: number[][];
  /** Served requests/s of each kind. */
  served: number[];
  /** Load of the fullest group; above 1 it cannot keep up. */
  load: number;
  /** Load of each group. */
  loads: number[];
}
