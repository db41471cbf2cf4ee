import type { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import { SchedulerError } from '../../../scheduler/errors.ts';
import type { Dispatch } from '../../../scheduler/follow/dispatch.ts';
import type { FittedForecaster, History } from '../../../scheduler/forecast/types.ts';
import type { SimulatedEngineLimits } from '../../../scheduler/simulator/engine-limits.ts';
import { type DeploymentPlan, gpusOfPlan, keyOf, planText, samePlan } from '../deployment-plan.ts';
import { type Evaluation, type ExpectedLoad, evaluate, overloadSeconds } from '../evaluate.ts';
import { candidatePlans, fits, uniformPlans } from '../exhaustive.ts';
import { EXHAUSTIVE_MAX_GPUS, flowGuided } from '../flow-guided.ts';
import type { OrchestrationDecision, Orchestrator, RunningRequest, View } from '../orchestrator.ts';
import type { PlacedReplica } from '../placement.ts';
import {
  forecastRequests,
  LONG_REQUESTS,
  type Rehearsal,
  SHORT_REQUESTS,
  simulatePlan,
  withRunningRequests,
} from '../rehearse.ts';

export interface OursOptions {
  table: RateTable;
  limits: SimulatedEngineLimits;
  forecaster: FittedForecaster;
  /** Slots ahead in which a change must pay off. */
  horizon: number;
  /** Seconds for which GPUs do not serve when their replica changes, from the plan of the transfer. */
  switchS: (running: readonly PlacedReplica[], to: DeploymentPlan) => number;
  /**
   * A change must save this share of the cost of staying, because forecasts err and alternating between plans serves no
   * request.
   */
  margin: number;
  /** Consecutive slots that must agree on a change to the same plan. */
  confirm?: number;
  /** Requests/s of each kind for the first plan; absent: the forecast. */
  initial?: readonly number[];
  /** An ablation: only the assignment follows the workload, the plan stays. */
  fixedPlan?: boolean;
  /** An ablation: all requests go to the least loaded replica, regardless of their kind. */
  untyped?: boolean;
  /** Plans that are evaluated; absent: all undominated ones, or those of `guidedPlans` above EXHAUSTIVE_MAX_GPUS. */
  plans?: (gpus: number) => readonly DeploymentPlan[];
  /**
   * The real requests of the next `horizonS`, which no forecaster knows: a bound. absent: they are drawn from the
   * forecast.
   */
  foresee?: (nowS: number, horizonS: number, most: number) => Rehearsal;
  /** An operator's pin: this plan, regardless of the workload. */
  pin?: DeploymentPlan;
  seed?: number;
  name?: string;
}

/** A plan with a dispatch, and its cost over the horizon. */
interface Candidate {
  found: Evaluation;
  /** True for the running plan. */
  stays: boolean;
  dispatch: Dispatch;
  /** Request seconds, including the switch to it. */
  cost: number;
  darkS: number;
}

/**
 * Plans with the best averages that are simulated. Averages rank pipelines too high: with 5 plans, the P99 of a steady
 * mix on 8 H100 was 12.2 s, with 24 it is 3.6 s.
 */
const SHORTLIST = 24;
/**
 * Number of the best candidates that are rehearsed over the whole horizon, if the first rehearsal covers only its
 * beginning.
 */
const FINALISTS = 4;
/**
 * Uniform plans that are rehearsed in addition to the shortlist: averages do not show that a single large pool absorbs
 * a burst that several small ones do not.
 */
const UNIFORM = 4;
/**
 * As in `otela-plan watch --confirm`. A burst can mislead a single slot (in one of 18 of OServe's runs); a third slot
 * only delays the reaction to a mix that flips.
 */
const CONFIRM = 2;
const NO_WISH = { key: '', slots: 0 };

/**
 * Follows the forecast. Every plan is evaluated by averages and the linear program. The best ones, and the running one,
 * are then simulated on the forecast. A plan replaces the running one if it saves the margin; this simulation begins
 * with the requests in progress and includes the GPUs that do not serve. Between changes, the assignment of kinds
 * follows the forecast in every slot.
 */
export function ours(options: OursOptions): Orchestrator {
  const plans = new Map<number, readonly DeploymentPlan[]>();
  const plansFor = (gpus: number, expected: ExpectedLoad): readonly DeploymentPlan[] => {
    if (options.pin !== undefined) return [options.pin];
    const guided = options.plans === undefined && gpus > EXHAUSTIVE_MAX_GPUS;
    const all = guided ? copiedPlans : candidatePlans;
    const known = plans.get(gpus) ?? options.plans?.(gpus) ?? all(options.table, gpus);
    plans.set(gpus, known);
    return guided ? guidedPlans(options, gpus, expected, known) : known;
  };
  // The change that the last slots preferred, and their number: neither a burst of one minute nor a preference that
  // changes each minute is a reason to move weights.
  let wish = NO_WISH;
  const decide = (view: View): OrchestrationDecision => {
    const expected = expectation(options, view);
    const coming = expected.demand.reduce((sum, one) => sum + one, 0) * expected.horizonS;
    const of = { options, view, expected, coming };
    const runs = view.plan.length > 0 && gpusOfPlan(view.plan) <= view.gpus && view.running.length > 0;
    const pinned = options.fixedPlan === true && runs;
    const candidates = weighed(of, pinned ? [] : plansFor(view.gpus, expected), runs);
    const best = leastOf(candidates);
    if (best === undefined) throw new SchedulerError('infeasible', `no plan fits on ${view.gpus} GPUs`);
    if (!runs) return decisionOf(best, `the best plan: ${planText(best.found.plan)}`);
    const keep = leastOf(candidates.filter(({ stays }) => stays)) ?? best;
    const worth = ([stay, change]: readonly (Candidate | undefined)[]) =>
      stay !== undefined && change !== undefined && stay.cost - change.cost >= stay.cost * options.margin;
    if (best.stays || !worth([keep, best])) {
      wish = NO_WISH;
      return decisionOf(keep, `no other plan saves ${options.margin * 100} % of what this one costs`);
    }
    // From the requests in progress: those that wait, those that arrive while GPUs do not serve, and how soon the new
    // replicas complete them.
    const both = rehearsed(of, [keep, best], LONG_REQUESTS, 2, view.underWay());
    const [stays, costs] = both.map(({ cost }) => cost.toFixed(0));
    const why = `${planText(best.found.plan)} costs ${costs} request seconds in ${options.horizon} slots, its switch included; what runs costs ${stays}`;
    const key = keyOf(best.found.plan);
    wish = worth(both) ? { key, slots: wish.key === key ? wish.slots + 1 : 1 } : NO_WISH;
    if (wish.slots === 0) return decisionOf(keep, `not worth a switch: ${why}`);
    if (wish.slots < (options.confirm ?? CONFIRM)) return decisionOf(keep, `a switch if the next slot agrees: ${why}`);
    wish = NO_WISH;
    return decisionOf(best, why);
  };
  return { name: options.name ?? 'ours', decide };
}

/**
 * If there are too many plans to evaluate each: the results of the guided search for the expected demand, the high
 * demand and their midpoint, the uniform plans, and `copies`. The search minimizes the load; `copies` also has the
 * plans with the lowest latency.
 */
function guidedPlans(
  { table, seed = 1 }: OursOptions,
  gpus: number,
  expected: ExpectedLoad,
  copies: readonly DeploymentPlan[],
): DeploymentPlan[] {
  const shapes = table.shapes.map(({ shape }) => shape);
  const guided = [expected.demand, between(expected), expected.high].map(
    (demand) => flowGuided(table, gpus, demand, { seed }).plan,
  );
  return [...guided.filter((plan) => fits(plan, table.site)), ...uniformPlans(shapes, gpus, table.site), ...copies];
}

/** Every plan of an equal part of the GPUs that is small enough to enumerate, repeated for each part. */
function copiedPlans(table: RateTable, gpus: number): DeploymentPlan[] {
  const parts = Math.ceil(gpus / EXHAUSTIVE_MAX_GPUS);
  return candidatePlans(table, Math.floor(gpus / parts))
    .map((plan) => plan.map(({ shape, replicas }) => ({ shape, replicas: replicas * parts })))
    .filter((plan) => fits(plan, table.site));
}

/** The input for evaluating plans. */
interface Weighing {
  options: OursOptions;
  view: View;
  expected: ExpectedLoad;
  /** Requests of the horizon. */
  coming: number;
}

/** Simulates the shortlist by averages, and the running plan, on the forecast with both kinds of dispatch. */
function weighed(of: Weighing, plans: readonly DeploymentPlan[], runs: boolean): Candidate[] {
  const { options, view, expected, coming } = of;
  const { table } = options;
  const now = runs ? evaluate(table, view.plan, expected) : undefined;
  // Several searches find the same plan: five copies of the best one are not a shortlist.
  const distinct = new Map(plans.map((plan) => [keyOf(plan), plan]));
  const scored = [...distinct.values()].map((plan) => evaluate(table, plan, expected)).sort(byScore);
  const uniform = scored.filter((one) => isUniform(one.plan) && one.load < 1).slice(0, UNIFORM);
  const chosen = new Map<string, Evaluation>();
  for (const one of [...(now === undefined ? [] : [now]), ...scored.slice(0, SHORTLIST), ...uniform])
    chosen.set(keyOf(one.plan), one);
  const all = [...chosen.values()].flatMap((found): Candidate[] => {
    const stays = now !== undefined && samePlan(found.plan, now.plan);
    const darkS = now === undefined || stays ? 0 : options.switchS(view.running, found.plan);
    const dispatches: Dispatch[] = [{ kind: 'least-loaded' }];
    if (options.untyped !== true && !isUniform(found.plan))
      dispatches.push({ kind: 'flow', flow: found.assignment.flow });
    return dispatches.map((dispatch) => ({ found, stays, dispatch, darkS, cost: 0 }));
  });
  if (coming <= SHORT_REQUESTS) return rehearsed(of, all, SHORT_REQUESTS, 1);
  const first = rehearsed(of, all, SHORT_REQUESTS, FINALISTS).sort((a, b) => a.cost - b.cost);
  const kept = first.find(({ stays }) => stays);
  const pool = first.find(({ found }) => isUniform(found.plan));
  const final = first.filter((one, i) => one !== kept && (i < FINALISTS || one === pool));
  return rehearsed(of, kept === undefined ? final : [kept, ...final], LONG_REQUESTS, 1);
}

/**
 * Returns the same candidates with their cost. The cost may be infinite for a candidate that is neither running nor
 * among the `wanted` best, because its rehearsal is cut short. If only one is wanted, this also applies to candidates
 * that do not save the margin. A rehearsal begins empty, or with the requests in `begun`.
 */
function rehearsed(
  { options, view, expected, coming }: Weighing,
  candidates: readonly Candidate[],
  most: number,
  wanted: number,
  begun?: readonly RunningRequest[],
): Candidate[] {
  const { table, limits, margin, seed = 1 } = options;
  const drawn =
    options.foresee?.(view.nowS, expected.horizonS, most) ??
    forecastRequests(table, between(expected), expected.horizonS, seed, most);
  const rehearsal = withRunningRequests(table, begun ?? [], drawn, seed);
  const start = begun === undefined ? {} : { start: { plan: view.plan, running: view.running } };
  const count = coming + (begun?.length ?? 0);
  const done: Candidate[] = [];
  const ranked = (rank: number, which: (one: Candidate) => boolean = () => true) => {
    const costs = done.filter(which).map(({ cost }) => cost);
    return costs.sort((a, b) => a - b)[rank - 1] ?? Number.POSITIVE_INFINITY;
  };
  const limitOf = ({ found, stays }: Candidate): number => {
    const kept = ranked(1, (one) => one.stays);
    if (stays) return kept;
    if (wanted === 1) return Math.min(ranked(1), kept * (1 - margin));
    // The best uniform one is wanted, too.
    const pool = isUniform(found.plan) ? ranked(1, (one) => isUniform(one.found.plan)) : 0;
    return Math.max(ranked(wanted), pool);
  };
  for (const one of candidates) {
    const { found, dispatch } = one;
    const darkS = begun === undefined ? 0 : one.darkS;
    // The rehearsal includes the queue of an overload for its duration, which must not count twice.
    const overloadS = (1 - Math.min(1, most / coming)) * overloadSeconds(expected, (found.load + found.highLoad) / 2);
    const latencyS = simulatePlan(table, limits, { plan: found.plan, dispatch, darkS }, rehearsal, {
      ...start,
      mostS: Math.max(0, limitOf(one) - overloadS) / count,
    });
    done.push({ ...one, cost: latencyS * count + overloadS });
  }
  return done;
}

const leastOf = (candidates: readonly Candidate[]): Candidate | undefined =>
  candidates.reduce<Candidate | undefined>((a, b) => (a === undefined || b.cost < a.cost ? b : a), undefined);
const byScore = (a: Evaluation, b: Evaluation): number => a.score - b.score;
const isUniform = (plan: DeploymentPlan): boolean => plan.length === 1;

/** Midpoint between the expected and the high demand: a plan that just fits the mean queues every other minute. */
const between = ({ demand, high }: ExpectedLoad): number[] => demand.map((one, j) => (one + (high[j] ?? one)) / 2);

const decisionOf = ({ found, dispatch, darkS }: Candidate, note: string): OrchestrationDecision => ({
  plan: found.plan,
  dispatch,
  darkS,
  running: 'migrate',
  note,
});

function expectation({ table, forecaster, horizon, initial }: OursOptions, { history, plan }: View): ExpectedLoad {
  const horizonS = horizon * history.slotS;
  if (initial !== undefined && (plan.length === 0 || (history.counts[0]?.length ?? 0) === 0))
    return { demand: initial, high: initial.map((one) => one * peak(table, history)), horizonS };
  const { mean, high } = forecaster.forecast(history, horizon);
  const perS = (steps: readonly number[] | undefined) =>
    (steps ?? []).reduce((sum, one) => sum + one, 0) / (Math.max(1, steps?.length ?? 1) * history.slotS);
  return { demand: mean.map(perS), high: high.map(perS), horizonS };
}

/** Without a history, the variation of demand is unknown: the first plan has capacity for this multiple of the mean. */
const UNKNOWN_PEAK = 1.5;
/** Slots from which the spread of the history is known, and the quantile that counts as its high. */
const PEAK_SLOTS_MIN = 5;
const PEAK_LEVEL = 0.9;

/** Ratio of the high of past slots to their mean, in work, because kinds do not all peak in the same slot. */
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
