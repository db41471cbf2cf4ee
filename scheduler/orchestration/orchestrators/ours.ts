import type { FittedForecaster } from '../../forecast/types.ts';
import type { EngineLimits } from '../../serving/limits.ts';
import { backlogSeconds, changedShare } from '../course.ts';
import { type Evaluation, type Expected, evaluate } from '../evaluate.ts';
import { candidatePlans, fits, uniformPlans } from '../exhaustive.ts';
import { EXHAUSTIVE_MAX_GPUS, flowGuided } from '../flow-guided.ts';
import type { Placed } from '../placement.ts';
import type { RateTable } from '../rates.ts';
import { forecastRequests, rehearse } from '../rehearse.ts';
import type { Decision, Dispatch, Orchestrator, View } from '../timeline.ts';
import { type DeploymentPlan, gpusOfPlan, keyOf, planText, samePlan } from '../types.ts';

export interface OursOptions {
  table: RateTable;
  limits: EngineLimits;
  forecaster: FittedForecaster;
  /** Slots ahead that a change has to pay in. */
  horizon: number;
  /** Seconds that GPUs are dark when their replica changes, from the plan of the transfer. */
  switchS: (running: readonly Placed[], to: DeploymentPlan) => number;
  /** A change must save this share of what keeping costs: forecasts err, and a plan that comes and goes serves nobody. */
  margin: number;
  /** Slots in a row that must agree on a change. */
  confirm?: number;
  /** Requests/s of each kind that the first plan is for; the forecast without it. */
  initial?: readonly number[];
  /** Only the assignment follows the workload, the plan stays: an ablation. */
  fixedPlan?: boolean;
  /** All requests to the least loaded replica, whatever their kind: an ablation. */
  untyped?: boolean;
  /** Plans that are weighed; all undominated ones without it. */
  plans?: (gpus: number) => readonly DeploymentPlan[];
  /** Plans that are rehearsed in each slot. */
  shortlist?: number;
  /** An operator's pin: this plan, whatever the workload. */
  pin?: DeploymentPlan;
  seed?: number;
  name?: string;
}

/** A plan with a way to give it requests, and what it costs over the horizon. */
interface Candidate {
  found: Evaluation;
  dispatch: Dispatch;
  /** Request seconds, the switch to it included. */
  cost: number;
  darkS: number;
}

const SHORTLIST = 5;
const CONFIRM = 2;

/**
 * Follows the forecast. Every plan is weighed by averages and the linear program; the best ones, and the one that runs, are then simulated on the
 * forecast. A plan replaces the one that runs if that saves more than the switch costs, with a margin. Between changes the assignment of kinds follows the
 * forecast in every slot.
 */
export function ours(options: OursOptions): Orchestrator {
  const plans = new Map<number, readonly DeploymentPlan[]>();
  const plansFor = (gpus: number, expected: Expected): readonly DeploymentPlan[] => {
    if (options.pin !== undefined) return [options.pin];
    if (options.plans === undefined && gpus > EXHAUSTIVE_MAX_GPUS) return guidedPlans(options, gpus, expected);
    const known = plans.get(gpus) ?? options.plans?.(gpus) ?? candidatePlans(options.table, gpus);
    plans.set(gpus, known);
    return known;
  };
  // Slots in a row in which a change was worth it: a burst of one minute is no reason to move weights.
  let wished = 0;
  const decide = (view: View): Decision => {
    const expected = expectation(options, view);
    const runs = view.plan.length > 0 && gpusOfPlan(view.plan) <= view.gpus && view.running.length > 0;
    const pinned = options.fixedPlan === true && runs;
    const candidates = weighed(options, view, expected, pinned ? [] : plansFor(view.gpus, expected), runs);
    const best = candidates.reduce((a, b) => (b.cost < a.cost ? b : a));
    const keep = candidates
      .filter(({ found }) => runs && samePlan(found.plan, view.plan))
      .sort((a, b) => a.cost - b.cost)[0];
    if (keep === undefined) return decisionOf(best, `the best plan: ${planText(best.found.plan)}`);
    if (samePlan(best.found.plan, view.plan)) {
      wished = 0;
      return decisionOf(best, 'the plan is still the best');
    }
    const why = `${planText(best.found.plan)} costs ${best.cost.toFixed(0)} request seconds in ${options.horizon} slots, its switch included; what runs costs ${keep.cost.toFixed(0)}`;
    const worth = keep.cost - best.cost >= keep.cost * options.margin;
    wished = worth ? wished + 1 : 0;
    if (!worth) return decisionOf(keep, `not worth a switch: ${why}`);
    if (wished < (options.confirm ?? CONFIRM)) return decisionOf(keep, `a switch if the next slot agrees: ${why}`);
    wished = 0;
    return decisionOf(best, why);
  };
  return { name: options.name ?? 'ours', decide };
}

/** Too many to weigh each: what the guided search finds for the expected and for the high demand, and the uniform ones. */
function guidedPlans({ table, seed = 1 }: OursOptions, gpus: number, expected: Expected): DeploymentPlan[] {
  const shapes = table.shapes.map(({ shape }) => shape);
  const guided = [expected.demand, between(expected), expected.high].map(
    (demand) => flowGuided(table, gpus, demand, { seed }).plan,
  );
  return [...guided.filter((plan) => fits(plan, table.site)), ...uniformPlans(shapes, gpus, table.site)];
}

/** The shortlist by averages, and what runs, each simulated on the forecast with both ways to dispatch. */
function weighed(
  options: OursOptions,
  view: View,
  expected: Expected,
  plans: readonly DeploymentPlan[],
  runs: boolean,
): Candidate[] {
  const { table, limits, shortlist = SHORTLIST, seed = 1 } = options;
  const now = runs ? evaluate(table, view.plan, expected) : undefined;
  const scored = plans.map((plan) => evaluate(table, plan, expected)).sort((a, b) => a.score - b.score);
  const uniform = scored.filter(({ plan }) => plan.length === 1).slice(0, 2);
  const chosen = new Map<string, Evaluation>();
  for (const one of [...(now === undefined ? [] : [now]), ...scored.slice(0, shortlist), ...uniform])
    chosen.set(keyOf(one.plan), one);
  const requests = forecastRequests(table, between(expected), expected.horizonS, seed);
  const total = expected.demand.reduce((sum, one) => sum + one, 0);
  return [...chosen.values()].flatMap((found): Candidate[] => {
    const stays = now !== undefined && samePlan(found.plan, now.plan);
    const darkS = now === undefined || stays ? 0 : options.switchS(view.running, found.plan);
    const changed = now === undefined || stays ? 0 : changedShare(now.plan, found.plan);
    const typical = (one: Evaluation) => (one.load + one.highLoad) / 2;
    const loadBefore = typical(now ?? found);
    const course = { expected, waiting: view.waiting, darkS, changed, loadBefore, loadAfter: typical(found) };
    // A rehearsal begins empty and is short: what waits today, an overload that lasts and the switch are the course's.
    const waiting = backlogSeconds(course);
    const dispatches: Dispatch[] = [{ kind: 'least-loaded' }];
    if (options.untyped !== true) dispatches.push({ kind: 'flow', flow: found.assignment.flow });
    return dispatches.map((dispatch) => {
      const latencyS = rehearse(table, limits, { plan: found.plan, dispatch }, requests);
      return { found, dispatch, darkS, cost: latencyS * total * expected.horizonS + waiting };
    });
  });
}

/** Half-way from the expected to the high demand: a plan that only just fits the mean queues every other minute. */
const between = ({ demand, high }: Expected): number[] => demand.map((one, j) => (one + (high[j] ?? one)) / 2);

const decisionOf = ({ found, dispatch, darkS }: Candidate, note: string): Decision => ({
  plan: found.plan,
  dispatch,
  darkS,
  running: 'migrate',
  note,
});

function expectation({ forecaster, horizon, initial }: OursOptions, { history, plan }: View): Expected {
  const horizonS = horizon * history.slotS;
  if (initial !== undefined && (plan.length === 0 || (history.counts[0]?.length ?? 0) === 0))
    return { demand: initial, high: initial, horizonS };
  const { mean, high } = forecaster.forecast(history, horizon);
  const perS = (steps: readonly number[] | undefined) =>
    (steps ?? []).reduce((sum, one) => sum + one, 0) / (Math.max(1, steps?.length ?? 1) * history.slotS);
  return { demand: mean.map(perS), high: high.map(perS), horizonS };
}
