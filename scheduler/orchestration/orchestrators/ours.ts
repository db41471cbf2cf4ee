import type { FittedForecaster, History } from '../../forecast/types.ts';
import type { EngineLimits } from '../../serving/limits.ts';
import { backlogSeconds, changedShare } from '../course.ts';
import { type Evaluation, type Expected, evaluate } from '../evaluate.ts';
import { candidatePlans, fits, uniformPlans } from '../exhaustive.ts';
import { EXHAUSTIVE_MAX_GPUS, flowGuided } from '../flow-guided.ts';
import type { Placed } from '../placement.ts';
import type { RateTable } from '../rates.ts';
import { forecastRequests, LONG_REQUESTS, rehearse, SHORT_REQUESTS } from '../rehearse.ts';
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
  /** Slots in a row that must agree on a change, each on the same plan. */
  confirm?: number;
  /** Requests/s of each kind that the first plan is for; the forecast without it. */
  initial?: readonly number[];
  /** Only the assignment follows the workload, the plan stays: an ablation. */
  fixedPlan?: boolean;
  /** All requests to the least loaded replica, whatever their kind: an ablation. */
  untyped?: boolean;
  /** Plans that are weighed; all undominated ones without it. */
  plans?: (gpus: number) => readonly DeploymentPlan[];
  /** An operator's pin: this plan, whatever the workload. */
  pin?: DeploymentPlan;
  seed?: number;
  name?: string;
}

/** A plan with a way to give it requests, and what it costs over the horizon. */
interface Candidate {
  found: Evaluation;
  dispatch: Dispatch;
  /** Request seconds of waiting by averages: what waits now, the switch, and an overload that lasts, */
  waitingS: number;
  /** which alone is this much. */
  overloadS: number;
  /** Request seconds, the switch to it included. */
  cost: number;
  darkS: number;
}

const SHORTLIST = 5;
/** Of the shortlist, those that are rehearsed over the whole horizon where the first rehearsal is only its beginning. */
const FINALISTS = 4;
/** Uniform plans that are rehearsed beside the shortlist: averages do not show that one large pool takes a burst that several small ones do not. */
const UNIFORM = 4;
const CONFIRM = 2;
const NO_WISH = { key: '', slots: 0 };

/**
 * Follows the forecast. Every plan is weighed by averages and the linear program; the best ones, and the one that runs, are then simulated on the
 * forecast. A plan replaces the one that runs if that saves more than the switch costs, with a margin. Between changes the assignment of kinds follows the
 * forecast in every slot.
 */
export function ours(options: OursOptions): Orchestrator {
  const plans = new Map<number, readonly DeploymentPlan[]>();
  const plansFor = (gpus: number, expected: Expected): readonly DeploymentPlan[] => {
    if (options.pin !== undefined) return [options.pin];
    const guided = options.plans === undefined && gpus > EXHAUSTIVE_MAX_GPUS;
    const all = guided ? copiedPlans : candidatePlans;
    const known = plans.get(gpus) ?? options.plans?.(gpus) ?? all(options.table, gpus);
    plans.set(gpus, known);
    return guided ? guidedPlans(options, gpus, expected, known) : known;
  };
  // The change that the last slots wished for, and how many did: neither a burst of one minute nor a wish that is another one
  // each minute is a reason to move weights.
  let wish = NO_WISH;
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
      wish = NO_WISH;
      return decisionOf(best, 'the plan is still the best');
    }
    const why = `${planText(best.found.plan)} costs ${best.cost.toFixed(0)} request seconds in ${options.horizon} slots, its switch included; what runs costs ${keep.cost.toFixed(0)}`;
    const worth = keep.cost - best.cost >= keep.cost * options.margin;
    const key = keyOf(best.found.plan);
    wish = worth ? { key, slots: wish.key === key ? wish.slots + 1 : 1 } : NO_WISH;
    if (!worth) return decisionOf(keep, `not worth a switch: ${why}`);
    if (wish.slots < (options.confirm ?? CONFIRM)) return decisionOf(keep, `a switch if the next slot agrees: ${why}`);
    wish = NO_WISH;
    return decisionOf(best, why);
  };
  return { name: options.name ?? 'ours', decide };
}

/**
 * Too many to weigh each: what the guided search finds for the expected and for the high demand, the uniform ones, and every plan of a
 * half (a third, ...) of the GPUs so many times over. The search makes the load small; `copies` has those that answer soonest, too.
 */
function guidedPlans(
  { table, seed = 1 }: OursOptions,
  gpus: number,
  expected: Expected,
  copies: readonly DeploymentPlan[],
): DeploymentPlan[] {
  const shapes = table.shapes.map(({ shape }) => shape);
  const guided = [expected.demand, between(expected), expected.high].map(
    (demand) => flowGuided(table, gpus, demand, { seed }).plan,
  );
  return [...guided.filter((plan) => fits(plan, table.site)), ...uniformPlans(shapes, gpus, table.site), ...copies];
}

/** Every plan of an equal part of the GPUs that is small enough to enumerate, as often as there are parts. */
function copiedPlans(table: RateTable, gpus: number): DeploymentPlan[] {
  const parts = Math.ceil(gpus / EXHAUSTIVE_MAX_GPUS);
  return candidatePlans(table, Math.floor(gpus / parts))
    .map((plan) => plan.map(({ shape, replicas }) => ({ shape, replicas: replicas * parts })))
    .filter((plan) => fits(plan, table.site));
}

/** The shortlist by averages, and what runs, each simulated on the forecast with both ways to dispatch. */
function weighed(
  options: OursOptions,
  view: View,
  expected: Expected,
  plans: readonly DeploymentPlan[],
  runs: boolean,
): Candidate[] {
  const { table, limits, seed = 1 } = options;
  const now = runs ? evaluate(table, view.plan, expected) : undefined;
  // Several ways to search find the same plan: five times the best one is no shortlist.
  const distinct = new Map(plans.map((plan) => [keyOf(plan), plan]));
  const scored = [...distinct.values()].map((plan) => evaluate(table, plan, expected)).sort(byScore);
  const uniform = scored.filter((one) => isUniform(one) && one.load < 1).slice(0, UNIFORM);
  const chosen = new Map<string, Evaluation>();
  for (const one of [...(now === undefined ? [] : [now]), ...scored.slice(0, SHORTLIST), ...uniform])
    chosen.set(keyOf(one.plan), one);
  const total = expected.demand.reduce((sum, one) => sum + one, 0);
  const drawn = new Map<number, ReturnType<typeof forecastRequests>>();
  const costed = (one: Candidate, most: number): Candidate => {
    const requests = drawn.get(most) ?? forecastRequests(table, between(expected), expected.horizonS, seed, most);
    drawn.set(most, requests);
    const latencyS = rehearse(table, limits, { plan: one.found.plan, dispatch: one.dispatch }, requests);
    // A rehearsal begins empty. The queue of an overload is in it as far as it goes, and must not count twice.
    const waitingS = one.waitingS - Math.min(1, most / (total * expected.horizonS)) * one.overloadS;
    return { ...one, cost: latencyS * total * expected.horizonS + waitingS };
  };
  const first = [...chosen.values()].flatMap((found): Candidate[] => {
    const stays = now !== undefined && samePlan(found.plan, now.plan);
    const darkS = now === undefined || stays ? 0 : options.switchS(view.running, found.plan);
    const changed = now === undefined || stays ? 0 : changedShare(now.plan, found.plan);
    const typical = (one: Evaluation) => (one.load + one.highLoad) / 2;
    const loadBefore = typical(now ?? found);
    const course = { expected, waiting: view.waiting, darkS, changed, loadBefore, loadAfter: typical(found) };
    const waitingS = backlogSeconds(course);
    const overloadS = backlogSeconds({ ...course, waiting: 0, darkS: 0 });
    const dispatches: Dispatch[] = [{ kind: 'least-loaded' }];
    if (options.untyped !== true && !isUniform(found)) dispatches.push({ kind: 'flow', flow: found.assignment.flow });
    return dispatches.map((dispatch) =>
      costed({ found, dispatch, darkS, waitingS, overloadS, cost: 0 }, SHORT_REQUESTS),
    );
  });
  first.sort((a, b) => a.cost - b.cost);
  const kept = first.find(({ found }) => now !== undefined && samePlan(found.plan, now.plan));
  if (total * expected.horizonS <= SHORT_REQUESTS) return first;
  const pool = first.find(({ found }) => isUniform(found));
  const final = first.filter((one, i) => i < FINALISTS || one === kept || one === pool);
  return final.map((one) => costed(one, LONG_REQUESTS));
}

const byScore = (a: Evaluation, b: Evaluation): number => a.score - b.score;
const isUniform = ({ plan }: Evaluation): boolean => plan.length === 1;

/** Half-way from the expected to the high demand: a plan that only just fits the mean queues every other minute. */
const between = ({ demand, high }: Expected): number[] => demand.map((one, j) => (one + (high[j] ?? one)) / 2);

const decisionOf = ({ found, dispatch, darkS }: Candidate, note: string): Decision => ({
  plan: found.plan,
  dispatch,
  darkS,
  running: 'migrate',
  note,
});

function expectation({ table, forecaster, horizon, initial }: OursOptions, { history, plan }: View): Expected {
  const horizonS = horizon * history.slotS;
  if (initial !== undefined && (plan.length === 0 || (history.counts[0]?.length ?? 0) === 0))
    return { demand: initial, high: initial.map((one) => one * peak(table, history)), horizonS };
  const { mean, high } = forecaster.forecast(history, horizon);
  const perS = (steps: readonly number[] | undefined) =>
    (steps ?? []).reduce((sum, one) => sum + one, 0) / (Math.max(1, steps?.length ?? 1) * history.slotS);
  return { demand: mean.map(perS), high: high.map(perS), horizonS };
}

/** Without a past nothing says how demand varies: the first plan has room for so many times the mean. */
const UNKNOWN_PEAK = 1.5;
/** Slots from which the spread of the past is known, and which of them counts as its high. */
const PEAK_SLOTS_MIN = 5;
const PEAK_LEVEL = 0.9;

/** How many times the mean of the past slots their high is, in work: kinds do not all peak in the same slot. */
function peak({ kinds, shapes }: RateTable, { counts }: History): number {
  const costS = kinds.map((_, j) => 1 / Math.max(1e-9, ...shapes.map(({ rates }) => rates[j] ?? 0)));
  const slots = Array.from({ length: counts[0]?.length ?? 0 }, (_, slot) =>
    counts.reduce((sum, series, j) => sum + (series[slot] ?? Number.NaN) * (costS[j] ?? 0), 0),
  );
  const work = slots.filter(Number.isFinite).sort((a, b) => a - b);
  const mean = work.reduce((sum, one) => sum + one, 0) / work.length;
  if (work.length < PEAK_SLOTS_MIN || !(mean > 0)) return UNKNOWN_PEAK;
  return Math.max(1, (work[Math.ceil(PEAK_LEVEL * work.length) - 1] ?? mean) / mean);
}
