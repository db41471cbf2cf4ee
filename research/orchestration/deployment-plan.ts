import type { Shape } from '../../scheduler/assignment/types.ts';

export const gpusOfShape = ({ tp, pp }: Shape): number => tp * pp;
export const shapeText = ({ tp, pp }: Shape): string => (pp === 1 ? `TP ${tp}` : `TP ${tp} × PP ${pp}`);
export const sameShape = (a: Shape, b: Shape): boolean => a.tp === b.tp && a.pp === b.pp;

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
