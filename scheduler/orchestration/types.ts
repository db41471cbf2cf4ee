import type { Gpu } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';

/** How one replica is spread: tensor parallelism inside a node, pipeline stages over it. */
export interface Shape {
  tp: number;
  pp: number;
}

export const gpusOfShape = ({ tp, pp }: Shape): number => tp * pp;
export const shapeText = ({ tp, pp }: Shape): string => (pp === 1 ? `TP ${tp}` : `TP ${tp} × PP ${pp}`);
export const sameShape = (a: Shape, b: Shape): boolean => a.tp === b.tp && a.pp === b.pp;

/** What a replica of one shape can do. */
export interface ShapeRates {
  shape: Shape;
  /** `rates[kind]`: requests/s if it served this kind alone (n_kj of OServe §4.2). */
  rates: readonly number[];
  /** `latencyS[kind]`: seconds of one answer at a load of 70 %. */
  latencyS: readonly number[];
}

/** Replicas of like shape count as one group. */
export interface Group {
  shape: Shape;
  replicas: number;
}

/** A set of replicas of one model on GPUs of one kind. */
export type DeploymentPlan = readonly Group[];

export const gpusOfPlan = (plan: DeploymentPlan): number =>
  plan.reduce((sum, { shape, replicas }) => sum + gpusOfShape(shape) * replicas, 0);

/** `2 × TP 2, 1 × TP 4 × PP 2`: what people read. */
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

/** The GPUs that one model has: like ones, in nodes. */
export interface Site {
  model: Model;
  gpu: Gpu;
  gpus: number;
  gpusPerNode: number;
}

/** Which kind goes to which group, requests/s: `flow[group][kind]`. */
export interface Assignment {
  flow: number[][];
  /** Requests/s of each kind that are served. */
  served: number[];
  /** Load of the fullest group; above 1 it cannot keep up. */
  load: number;
  /** Load of each group. */
  loads: number[];
}
