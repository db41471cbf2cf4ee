import type { Shape } from '../../scheduler/assignment/types.ts';
import { type DeploymentPlan, type Group, gpusOfShape } from './deployment-plan.ts';

/** Most plans of one enumeration: 32 GPUs of a model with many heads have 120,000. */
const PLANS_MAX = 1_000_000;

/**
 * Enumerates multisets of shapes on exactly `gpus` GPUs. If no multiset fills them all, on as many as can be filled.
 * Replicas of equal shape are one group. `shapes` must be distinct.
 */
export function plansOf(shapes: readonly Shape[], gpus: number): DeploymentPlan[] {
  const usable = shapes.filter((shape) => gpusOfShape(shape) <= gpus);
  for (let filled = gpus; filled > 0; filled--) {
    const found: DeploymentPlan[] = [];
    extend(usable, 0, filled, [], found);
    if (found.length > 0) return found;
  }
  return [];
}

function extend(shapes: readonly Shape[], at: number, left: number, chosen: Group[], found: DeploymentPlan[]): void {
  if (left === 0) {
    if (found.length < PLANS_MAX) found.push([...chosen]);
    return;
  }
  const shape = shapes[at];
  if (shape === undefined) return;
  const each = gpusOfShape(shape);
  extend(shapes, at + 1, left, chosen, found);
  for (let replicas = 1; replicas * each <= left; replicas++) {
    chosen.push({ shape, replicas });
    extend(shapes, at + 1, left - replicas * each, chosen, found);
    chosen.pop();
  }
}
