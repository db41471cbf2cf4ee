import type { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import type { DeploymentPlan } from '../deployment-plan.ts';
import type { MemberRole } from '../member.ts';
import type { OrchestrationDecision, Orchestrator, View } from '../orchestrator.ts';
import { rates } from './rates-of-slot.ts';

/**
 * Dynamo's planner (NVIDIA, 2025): separate replicas, all of one shape, compute prompts and responses; the load of the
 * last slot decides how many of each. A replica that changes its role keeps its weights.
 */
export function dynamo(table: RateTable, plan: DeploymentPlan): Orchestrator {
  const group = plan[0];
  const count = group?.replicas ?? 0;
  let prefills = Math.max(1, Math.round(count / 3));
  const decide = (view: View): OrchestrationDecision | undefined => {
    if (group === undefined) return undefined;
    const demand = rates(view.history, 1);
    if (demand.some((one) => one > 0)) prefills = prefillReplicas(table, group.shape, demand, count);
    const roles: MemberRole[] = Array.from({ length: count }, (_, i) => (i < prefills ? 'prefill' : 'decode'));
    return {
      plan,
      dispatch: { kind: 'least-loaded' },
      darkS: 0,
      running: 'migrate',
      roles: count < 2 ? ['both'] : roles,
      note: `${prefills} of ${count} replicas compute prompts`,
    };
  };
  return { name: 'Dynamo', decide };
}

/** Replicas in proportion to the seconds of prompts and responses, each at its best batch; at least one of both. */
function prefillReplicas(
  table: RateTable,
  shape: { tp: number; pp: number },
  demand: readonly number[],
  count: number,
): number {
  const step = table.step(shape);
  let [prompts, all] = [0, 0];
  for (const [j, kind] of table.kinds.entries()) {
    const { input } = kind.moments;
    const prompt =
      step.linear(Math.max(1, Math.round(input.mean))) + step.pairsSeconds(input.square / 2, input.square / 2);
    prompts += (demand[j] ?? 0) * prompt;
    const rate = table.of(shape).rates[j] ?? 0;
    if (rate > 0) all += (demand[j] ?? 0) / rate;
  }
  const share = all > 0 ? Math.min(0.95, prompts / all) : 0.3;
  return Math.min(count - 1, Math.max(1, Math.round(count * share)));
}
