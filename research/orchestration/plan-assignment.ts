import { balance } from '../../scheduler/assignment/demand-assignment.ts';
import type { RateTable } from '../../scheduler/assignment/rate-table.ts';
import type { Assignment, ShapeRates } from '../../scheduler/assignment/types.ts';
import type { DeploymentPlan } from './deployment-plan.ts';

/** A replica serves one kind if that kind has at least this share of its time. */
const ONE_KIND = 0.95;

/**
 * Assigns demand to the groups of a plan. The rates of a pipeline are lower if it serves several kinds. If the
 * assignment gives it only one, it is assigned again with the rates for one kind.
 */
export function planAssignment(
  table: RateTable,
  plan: DeploymentPlan,
  demand: readonly number[],
  preference?: Parameters<typeof balance>[1],
): Assignment {
  const groups = plan.map(({ shape }) => table.of(shape));
  const replicas = plan.map(({ replicas: count }) => count);
  const together = balance({ rates: groups.map(({ rates }) => rates), replicas, demand }, preference);
  const rates = groups.map((group, g) => (servesOneKind(group, together.flow[g] ?? []) ? group.alone : group.rates));
  if (groups.every((group, g) => group.rates === rates[g])) return together;
  return balance({ rates, replicas, demand }, preference);
}

function servesOneKind({ alone }: ShapeRates, flow: readonly number[]): boolean {
  const times = flow.map((amount, kind) => (amount > 0 ? amount / (alone[kind] ?? 0) : 0));
  return Math.max(...times) >= ONE_KIND * times.reduce((sum, one) => sum + one, 0);
}
