import type { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import type { Shape } from '../../../scheduler/assignment/types.ts';
import { kvCapacityTokens } from '../../../scheduler/roofline/model-deployment.ts';
import { IDLE_STEP, type StepModel } from '../../../scheduler/roofline/step-model.ts';
import type { DeploymentPlan } from '../deployment-plan.ts';
import type { MemberRole } from '../member.ts';
import type { OrchestrationDecision, Orchestrator, View } from '../orchestrator.ts';
import { rates } from './rates-of-slot.ts';

/** Defaults of Dynamo's planner: seconds between two adjustments, and the largest seconds between two tokens. */
const [ADJUST_S, ITL_S] = [180, 0.05];

/**
 * Dynamo's SLA planner (components/planner of ai-dynamo/dynamo, July 2025): separate replicas compute prompts and
 * responses, and each adjustment computes how many of each the last interval's mean lengths need. Its correction factors
 * are 1 here, and its forecast is the last value, as its ARIMA's is below five samples. It would leave the replicas idle
 * that it does not need; here all work, in its proportion. A replica that changes its role keeps its weights.
 */
export function dynamo(table: RateTable, plan: DeploymentPlan, initial: readonly number[]): Orchestrator {
  const group = plan[0];
  const count = group?.replicas ?? 0;
  let prefills: number | undefined;
  const decide = (view: View): OrchestrationDecision | undefined => {
    const slots = Math.max(1, Math.round(ADJUST_S / view.history.slotS));
    if (group === undefined || view.slot % slots !== 0) return undefined;
    const demand = view.slot === 0 ? initial : rates(view.history, slots);
    if (prefills === undefined || demand.some((one) => one > 0))
      prefills = prefillReplicas(table, group.shape, demand, count);
    const first = prefills;
    const roles: MemberRole[] = Array.from({ length: count }, (_, i) => (i < first ? 'prefill' : 'decode'));
    return {
      plan,
      dispatch: { kind: 'least-loaded' },
      darkS: 0,
      running: 'migrate',
      roles: count < 2 ? ['both'] : roles,
      note: `${first} of ${count} replicas compute prompts`,
    };
  };
  return { name: 'Dynamo', decide };
}

/** `_compute_replica_requirements` of the planner, for replicas of one shape. */
export function prefillReplicas(table: RateTable, shape: Shape, demand: readonly number[], count: number): number {
  const total = demand.reduce((sum, one) => sum + one, 0);
  const mean = (of: 'input' | 'output') =>
    table.kinds.reduce((sum, { moments }, j) => sum + (demand[j] ?? 0) * moments[of].mean, 0) / Math.max(total, 1e-9);
  const [input, output] = [Math.max(1, Math.round(mean('input'))), mean('output')];
  const step = table.step(shape);
  const pairs = (input * (input + 1)) / 2;
  const prompts = input / (step.linear(input) + step.pairsSeconds(pairs, pairs));
  const prefill = Math.max(1, Math.ceil((total * input) / prompts));
  const decode = Math.max(1, Math.ceil((total * output) / decodeTokensPerS(step, input + output / 2)));
  return Math.min(count - 1, Math.max(1, Math.round((count * prefill) / (prefill + decode))));
}

/** `find_best_throughput_per_gpu`: tokens/s of the largest batch in memory that keeps the time between tokens. */
function decodeTokensPerS(step: StepModel, context: number): number {
  const seconds = (batch: number) =>
    step.seconds({
      ...IDLE_STEP,
      decodes: batch,
      context: batch * context,
      windowContext: batch * (step.window > 0 ? Math.min(context, step.window) : 0),
    });
  let batch = Math.max(1, Math.floor(kvCapacityTokens(step.deployment) / context));
  while (batch > 1 && seconds(batch) > ITL_S) batch--;
  return batch / seconds(batch);
}
