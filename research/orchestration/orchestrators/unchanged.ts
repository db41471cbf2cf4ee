import type { Dispatch } from '../../../scheduler/follow/dispatch.ts';
import type { DeploymentPlan } from '../deployment-plan.ts';
import type { OrchestrationDecision, Orchestrator } from '../orchestrator.ts';

const decision = (plan: DeploymentPlan, dispatch: Dispatch, note: string): OrchestrationDecision => ({
  plan,
  dispatch,
  darkS: 0,
  running: 'recompute',
  note,
});

/** One deployment for the whole run. */
export function unchanged(name: string, plan: DeploymentPlan, dispatch: Dispatch): Orchestrator {
  return { name, decide: ({ slot }) => (slot === 0 ? decision(plan, dispatch, 'stays so') : undefined) };
}

/** Seconds between two rounds of Llumnix's scheduler in this simulation. */
const REBALANCE_S = 2;

/**
 * Llumnix (OSDI'24): one deployment of equal replicas, between which running requests move live to balance the load.
 */
export function llumnix(plan: DeploymentPlan): Orchestrator {
  return {
    name: 'Llumnix',
    decide: ({ slot }) =>
      slot === 0
        ? { ...decision(plan, { kind: 'least-loaded' }, 'moves running requests'), rebalanceS: REBALANCE_S }
        : undefined,
  };
}
