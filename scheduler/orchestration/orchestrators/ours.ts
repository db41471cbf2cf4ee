import type { FittedForecaster } from '../../forecast/types.ts';
import { type Evaluation, type Expected, evaluate } from '../evaluate.ts';
import { bestPlan, candidatePlans } from '../exhaustive.ts';
import type { RateTable } from '../rates.ts';
import type { Decision, Orchestrator, View } from '../timeline.ts';
import { type DeploymentPlan, planText, samePlan } from '../types.ts';

export interface OursOptions {
  table: RateTable;
  forecaster: FittedForecaster;
  /** Slots ahead that a change has to pay in. */
  horizon: number;
  /** Seconds that GPUs are dark when their replica changes, from the plan of the transfer. */
  switchS: (from: DeploymentPlan, to: DeploymentPlan) => number;
  /** A change must save this share of what keeping costs: forecasts err, and a plan that comes and goes serves nobody. */
  margin: number;
  /** Plans that are weighed; all undominated ones without it. */
  plans?: (gpus: number) => readonly DeploymentPlan[];
  /** Requests/s of each kind to begin with, before anything was observed. */
  initial?: readonly number[];
  /** Only the assignment follows the workload, the plan stays: an ablation. */
  fixedPlan?: boolean;
  name?: string;
}

/**
 * Follows the forecast: the plan that is best for the next slots replaces the one that runs if what it gains over the horizon is more than what
 * the switch costs, with a margin. Between changes the assignment of kinds follows the forecast in every slot.
 */
export function ours(options: OursOptions): Orchestrator {
  const { table, horizon } = options;
  const plans = new Map<number, readonly DeploymentPlan[]>();
  const plansFor = (gpus: number) => {
    const known = plans.get(gpus) ?? options.plans?.(gpus) ?? candidatePlans(table, gpus);
    plans.set(gpus, known);
    return known;
  };
  const decide = (view: View): Decision => {
    const expected = expectation(options, view);
    const fits = view.plan.reduce((sum, { shape, replicas }) => sum + shape.tp * shape.pp * replicas, 0) <= view.gpus;
    const now = view.plan.length > 0 && fits ? evaluate(table, view.plan, expected) : undefined;
    if (now !== undefined && options.fixedPlan === true) return decisionOf(now, 0, 'the plan is fixed');
    const candidates = plansFor(view.gpus);
    if (now === undefined) {
      const best = bestPlan(table, candidates, expected);
      return decisionOf(best, options.switchS(view.plan, best.plan), 'the best plan at the start');
    }
    const keep = costOf(now, { expected, waiting: view.waiting, darkS: 0, changed: 0, capacityBefore: 0 });
    let [best, least, dark]: [Evaluation, number, number] = [now, keep, 0];
    for (const plan of candidates) {
      if (samePlan(plan, now.plan)) continue;
      const found = evaluate(table, plan, expected);
      if (found.latencyS * requestsOf(expected) >= least) continue;
      const darkS = options.switchS(now.plan, plan);
      const changed = changedShare(now.plan, plan);
      const cost = costOf(found, { expected, waiting: view.waiting, darkS, changed, capacityBefore: 1 / now.load });
      if (cost < least) [best, least, dark] = [found, cost, darkS];
    }
    if (best === now) return decisionOf(now, 0, 'no other plan is better, its switch included');
    const why = `${planText(best.plan)} costs ${least.toFixed(0)} request seconds in ${horizon} slots, what runs ${keep.toFixed(0)}`;
    if (keep - least < keep * options.margin) return decisionOf(now, 0, `not worth a switch: ${why}`);
    return decisionOf(best, dark, why);
  };
  return { name: options.name ?? 'ours', decide };
}

const decisionOf = ({ plan, assignment }: Evaluation, darkS: number, note: string): Decision => ({
  plan,
  dispatch: { kind: 'flow', flow: assignment.flow },
  darkS,
  running: 'migrate',
  note,
});

function expectation({ forecaster, horizon, initial }: OursOptions, { history }: View): Expected {
  const horizonS = horizon * history.slotS;
  if (initial !== undefined && (history.counts[0]?.length ?? 0) === 0)
    return { demand: initial, high: initial, horizonS };
  const { mean, high } = forecaster.forecast(history, horizon);
  const perS = (steps: readonly number[] | undefined) =>
    (steps ?? []).reduce((sum, one) => sum + one, 0) / (Math.max(1, steps?.length ?? 1) * history.slotS);
  return { demand: mean.map(perS), high: high.map(perS), horizonS };
}

const requestsOf = ({ demand, horizonS }: Expected): number => demand.reduce((sum, one) => sum + one, 0) * horizonS;

interface Course {
  expected: Expected;
  /** Requests that wait already. */
  waiting: number;
  darkS: number;
  /** Share of the GPUs that is dark. */
  changed: number;
  /** Of what runs now, as a multiple of the demand. */
  capacityBefore: number;
}

/**
 * Request seconds over the horizon: answers without a backlog, and the backlog as a fluid. While a share of the GPUs is dark the rest serves; what is left
 * at the end of the horizon drains at the spare capacity. The mean of the expected and the high demand.
 */
function costOf(found: Evaluation, course: Course): number {
  const rate = course.expected.demand.reduce((sum, one) => sum + one, 0);
  const answers = found.latencyS * rate * course.expected.horizonS;
  const high = course.expected.high.reduce((sum, one) => sum + one, 0);
  const before = course.capacityBefore * rate;
  const backlog = (demand: number, load: number) =>
    backlogSeconds({ ...course, demand, before, after: load > 0 ? demand / load : Number.POSITIVE_INFINITY });
  return answers + (backlog(rate, found.load) + backlog(high, found.highLoad)) / 2;
}

/** A backlog never drains slower than at this share of the capacity: demand does not stay above it for ever. */
const SPARE_MIN = 0.05;

function backlogSeconds(of: Course & { demand: number; before: number; after: number }): number {
  let [waiting, area] = [of.waiting, 0];
  const phase = (capacity: number, seconds: number) => {
    const end = waiting + (of.demand - capacity) * seconds;
    if (end >= 0) {
      area += ((waiting + end) / 2) * seconds;
      waiting = end;
    } else {
      area += waiting ** 2 / (2 * (capacity - of.demand));
      waiting = 0;
    }
  };
  phase(of.before * (1 - of.changed), of.darkS);
  phase(of.after, Math.max(0, of.expected.horizonS - of.darkS));
  if (!Number.isFinite(of.after)) return area;
  return area + waiting ** 2 / (2 * Math.max(of.after - of.demand, of.after * SPARE_MIN));
}

/** Share of the GPUs whose replica ends. */
export function changedShare(from: DeploymentPlan, to: DeploymentPlan): number {
  let [changed, all] = [0, 0];
  for (const { shape, replicas } of from) {
    const kept = to.find((one) => one.shape.tp === shape.tp && one.shape.pp === shape.pp)?.replicas ?? 0;
    const each = shape.tp * shape.pp;
    all += each * replicas;
    changed += each * Math.max(0, replicas - kept);
  }
  return all === 0 ? 0 : changed / all;
}
