import type { RateTable } from '../../scheduler/assignment/rate-table.ts';
import type { Shape, ShapeRates, Site } from '../../scheduler/assignment/types.ts';
import { SchedulerError } from '../../scheduler/errors.ts';
import { type DeploymentPlan, gpusOfShape } from './deployment-plan.ts';
import { plansOf } from './enumerate.ts';
import { place } from './placement.ts';

/** Plans of undominated shapes. */
export const candidatePlans = (table: Pick<RateTable, 'shapes' | 'site'>, gpus: number): DeploymentPlan[] =>
  plansOfShapes(undominated(table.shapes), gpus, table.site);

/** Plans of all shapes: averages, which may be wrong, leave none out. */
export const allPlans = (table: Pick<RateTable, 'shapes' | 'site'>, gpus: number): DeploymentPlan[] =>
  plansOfShapes(table.shapes, gpus, table.site);

const plansOfShapes = (rates: readonly ShapeRates[], gpus: number, site: Site): DeploymentPlan[] =>
  plansOf(
    rates.map(({ shape }) => shape),
    gpus,
  ).filter((plan) => fits(plan, site));

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

/**
 * Removes the shapes that another shape of at most as many GPUs beats in every kind, in both rate and latency. A
 * pipeline counts with the rates that it has if it serves one kind: an assignment may give it only that kind.
 */
function undominated(shapes: readonly ShapeRates[]): ShapeRates[] {
  const beats = (a: ShapeRates, b: ShapeRates) =>
    gpusOfShape(a.shape) <= gpusOfShape(b.shape) &&
    a.rates.every((rate, j) => rate >= (b.alone[j] ?? 0)) &&
    a.latencyS.every((latency, j) => latency <= (b.latencyS[j] ?? 0));
  return shapes.filter(
    (one, i) => !shapes.some((other, o) => o !== i && beats(other, one) && (o < i || !beats(one, other))),
  );
}
