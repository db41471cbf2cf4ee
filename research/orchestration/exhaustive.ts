import { SchedulerError } from '../../scheduler/errors.ts';
import { type RateTable, undominated } from '../../scheduler/orchestration/rates.ts';
import type { DeploymentPlan, Shape, Site } from '../../scheduler/orchestration/types.ts';
import { plansOf } from './enumerate.ts';
import { place } from './placement.ts';

/** Plans worth weighing: of shapes that no other beats. */
export function candidatePlans(table: RateTable, gpus: number): DeploymentPlan[] {
  const shapes = undominated(table.shapes).map(({ shape }) => shape);
  return plansOf(shapes, gpus).filter((plan) => fits(plan, table.site));
}

/** Whether nodes have room: two replicas of seven GPUs and one of two are no plan for two nodes of eight. */
export function fits(plan: DeploymentPlan, site: Site): boolean {
  try {
    place(plan, [], site);
    return true;
  } catch (error) {
    if (error instanceof SchedulerError && error.code === 'infeasible') return false;
    throw error;
  }
}

/** As many replicas of each shape alone as nodes have room for: of TP 3 four on two nodes of eight, not five. */
export function uniformPlans(shapes: readonly Shape[], gpus: number, site: Site): DeploymentPlan[] {
  return shapes.flatMap((shape): DeploymentPlan[] => {
    for (let replicas = Math.floor(gpus / (shape.tp * shape.pp)); replicas > 0; replicas--)
      if (fits([{ shape, replicas }], site)) return [[{ shape, replicas }]];
    return [];
  });
}
