import { SchedulerError } from '../../scheduler/errors.ts';
import { type RateTable, undominated } from '../../scheduler/orchestration/rates.ts';
import type { DeploymentPlan, Shape, Site } from '../../scheduler/orchestration/types.ts';
import { plansOf } from './enumerate.ts';
import { place } from './placement.ts';

/** Plans of undominated shapes. */
export function candidatePlans(table: RateTable, gpus: number): DeploymentPlan[] {
  const shapes = undominated(table.shapes).map(({ shape }) => shape);
  return plansOf(shapes, gpus).filter((plan) => fits(plan, table.site));
}

/** True if the plan fits the nodes: two replicas of seven GPUs and one of two do not fit two nodes of eight. */
export function fits(plan: DeploymentPlan, site: Site): boolean {
  try {
    place(plan, [], site);
    return true;
  } catch (error) {
    if (error instanceof SchedulerError && error.code === 'infeasible') return false;
    throw error;
  }
}

/**
 * For each shape, a plan with as many replicas as the nodes can hold: of TP 3, four on two nodes of eight, not five.
 */
export function uniformPlans(shapes: readonly Shape[], gpus: number, site: Site): DeploymentPlan[] {
  return shapes.flatMap((shape): DeploymentPlan[] => {
    for (let replicas = Math.floor(gpus / (shape.tp * shape.pp)); replicas > 0; replicas--)
      if (fits([{ shape, replicas }], site)) return [[{ shape, replicas }]];
    return [];
  });
}
