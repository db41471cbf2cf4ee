import type { Gpu } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';

/** Parallelism of one replica: tensor parallelism inside a node, pipeline stages across nodes. */
export interface Shape {
  tp: number;
  pp: number;
}

export const gpusOfShape = ({ tp, pp }: Shape): number => tp * pp;
export const shapeText = ({ tp, pp }: Shape): string => (pp === 1 ? `TP ${tp}` : `TP ${tp} × PP ${pp}`);
export const sameShape = (a: Shape, b: Shape): boolean => a.tp === b.tp && a.pp === b.pp;

/** Rates of a replica of one shape. */
export interface ShapeRates {
  shape: Shape;
  /** `rates[kind]`: requests/s if it served only this kind (n_kj of OServe §4.2). */
  rates: readonly number[];
  /** `latencyS[kind]`: seconds of one response at a load of 70 %. */
  latencyS: readonly number[];
}

/** Replicas of equal shape count as one group. */
export interface Group {
  shape: Shape;
  replicas: number;
}

/** A set of replicas of one model on GPUs of one kind. */
export type DeploymentPlan = readonly Group[];

export const gpusOfPlan = (plan: DeploymentPlan): number =>
  plan.reduce((sum, { shape, replicas }) => sum + gpusOfShape(shape) * replicas, 0);

/** `2 × TP 2, 1 × TP 4 × PP 2`, for people. */
export const planText = (plan: DeploymentPlan): string =>
  plan.map(({ shape, replicas }) => `${replicas} × ${shapeText(shape)}`).join(', ') || 'nothing';

export const samePlan = (a: DeploymentPlan, b: DeploymentPlan): boolean => keyOf(a) === keyOf(b);

/** Equal for plans that differ only in order. */
export const keyOf = (plan: DeploymentPlan): string =>
  plan
    .filter(({ replicas }) => replicas > 0)
    .map(({ shape, replicas }) => `${shape.tp}.${shape.pp}x${replicas}`)
    .sort()
    .join();

/** The GPUs of one model: equal ones, in nodes. */
export interface Site {
  model: Model;
  gpu: Gpu;
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
