import type { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import { samePlan } from '../deployment-plan.ts';
import { type Evaluation, evaluate } from '../evaluate.ts';
import { uniformPlans } from '../exhaustive.ts';
import type { OrchestrationDecision, Orchestrator, View } from '../orchestrator.ts';
import { rates } from './rates-of-slot.ts';

/** Seconds of a switch: the paper gives this baseline its own switch of about 10 s (OServe §4.2), not a reload of 50 s. */
const SWITCH_S = 10;

/**
 * Restarts engines in the uniform shape that suits the last slots best, if that shape is better by `margin`. Running
 * requests are recomputed. `everySlots`: slots between two decisions, each by the mix of that number of slots.
 * `initial`: requests/s of each kind for the first deployment.
 */
export function reload(
  table: RateTable,
  everySlots: number,
  margin: number,
  initial?: readonly number[],
): Orchestrator {
  const decide = (view: View): OrchestrationDecision | undefined => {
    if (view.slot % everySlots !== 0 && view.plan.length > 0) return undefined;
    const first = view.plan.length === 0 ? initial : undefined;
    const demand = first ?? rates(view.history, everySlots);
    const expected = { demand, high: demand, horizonS: view.history.slotS * everySlots };
    const plans = uniformPlans(
      table.shapes.map(({ shape }) => shape),
      view.gpus,
      table.site,
    );
    const scored = plans.map((plan) => evaluate(table, plan, expected));
    const best = scored.reduce(
      (a: Evaluation | undefined, b) => (a === undefined || b.score < a.score ? b : a),
      undefined,
    );
    if (best === undefined) return undefined;
    const now = view.plan.length > 0 ? evaluate(table, view.plan, expected) : undefined;
    if (now !== undefined && (samePlan(best.plan, view.plan) || best.score > now.score * (1 - margin)))
      return undefined;
    return {
      plan: best.plan,
      dispatch: { kind: 'least-loaded' },
      darkS: SWITCH_S,
      running: 'recompute',
      note: 'another uniform shape suits the last slots better',
    };
  };
  return { name: 'reload', decide };
}
