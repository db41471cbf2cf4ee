import type { RateTable } from '../../scheduler/assignment/rate-table.ts';
import type { Shape, ShapeRates, Site } from '../../scheduler/assignment/types.ts';
import { SchedulerError } from '../../scheduler/errors.ts';
import { type DeploymentPlan, gpusOfShape } from './deployment-plan.ts';
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

/** Removes the shapes that another shape of at most as many GPUs beats in every kind, in both rate and latency. */
function undominated(shapes: readonly ShapeRates[]): ShapeRates[] {
  return shapes.filter(
    (one, i) =>
      !shapes.some((other, o) => {
        if (o === i || gpusOfShape(other.shape) > gpusOfShape(one.shape)) return false;
        const faster = other.rates.every((rate, j) => rate >= (one.rates[j] ?? 0));
        const sooner = other.latencyS.every((latency, j) => latency <= (one.latencyS[j] ?? 0));
        const same = faster && sooner && other.rates.every((rate, j) => rate === one.rates[j]);
        return faster && sooner && (!same || o < i);
      }),
  );
}
