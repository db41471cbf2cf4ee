/**
 * Cost of keeping a layout, or of changing it in one of the slots ahead: the time that requests wait and run. A fluid
 * model, slot by slot.
 */
import { balance } from '../assignment/demand-assignment.ts';
import type { Assignment } from '../assignment/types.ts';
import {
  type FollowProblem,
  type ForecastDemand,
  type Layout,
  optionsOf,
  sameLayout,
  stopsOf,
  TRACE_DEMAND,
} from './follow-problem.ts';

/**
 * While no group of replicas is fuller than this, each kind goes to the replicas with the lowest latency; above it the
 * loads are balanced.
 */
const IDLE_LOAD = 0.92;
/** A replica's load counts as at most this much in the formula of the wait, which is infinite at 1. */
const LOAD_MAX = 0.95;
/** A remaining backlog drains at least at this share of the capacity. */
const SPARE_MIN = 0.05;
/** A backlog that remains after the horizon is followed for at most this time. */
const BEYOND_S = 600;
/** A change in more waves than this is computed in this many parts. */
const PARTS_MAX = 32;

/** How the kinds are assigned to the replicas of one model. `indexes`: its options that have replicas. */
interface Shares {
  indexes: number[];
  assignment: Assignment;
}

export function demandShares(
  problem: FollowProblem,
  { model }: ForecastDemand,
  layout: Layout,
  demand: readonly number[],
): Shares {
  const indexes = optionsOf(problem, model).filter((i) => (layout[i] ?? 0) > 0);
  const groups = indexes.flatMap((i) => problem.options[i] ?? []);
  if (groups.length === 0)
    return { indexes, assignment: { flow: [], served: demand.map(() => 0), loads: [], load: 0 } };
  const trace = TRACE_DEMAND * demand.reduce((sum, one) => sum + one, 0);
  const assignment = balance(
    {
      rates: groups.map(({ rates }) => rates),
      replicas: indexes.map((i) => layout[i] ?? 0),
      demand: demand.map((one) => Math.max(one, trace)),
    },
    { cost: groups.map(({ latencyS }) => latencyS.map((s) => (Number.isFinite(s) ? s : 1e4))), idle: IDLE_LOAD },
  );
  return { indexes, assignment };
}

/**
 * Request seconds, that is the number of requests in progress summed over time: over the horizon, and until the
 * remaining backlog has drained, at most for BEYOND_S. A request that no replica can serve counts as the longest time
 * that a request can take, so that no load is too high to serve a part of it. `at`: the step in which the change to
 * `to` is ordered; undefined: the layout stays. Replicas change in waves; replicas of other waves serve meanwhile.
 */
export function transitionCost(problem: FollowProblem, to: Layout, at: number | undefined): number {
  return problem.models.reduce((sum, one) => sum + costOf(problem, one, to, at), 0);
}

function costOf(problem: FollowProblem, demand: ForecastDemand, to: Layout, at: number | undefined): number {
  const { running, slotS, switchS, wave } = problem;
  const own = optionsOf(problem, demand.model);
  const only = (layout: Layout): Layout => layout.map((count, i) => (own.includes(i) ? count : 0));
  const changes = at !== undefined && !sameLayout(only(running), only(to));
  const ended = stopsOf(only(running), only(to));
  const waves = Math.max(1, Math.ceil(ended / Math.max(1, wave)));
  const darkS = changes ? switchS * waves : 0;
  const least = running.map((count, i) => Math.min(count, to[i] ?? 0));
  const unservedS = unservedSeconds(problem, demand);
  const serves = (i: number, kind: number) => (to[i] ?? 0) > 0 && (problem.options[i]?.rates[kind] ?? 0) > 0;
  let [waiting, area] = [0, 0];
  let last = { rate: 0, capacity: 0 };
  const phase = (layout: Layout, typical: readonly number[], seconds: number) => {
    if (seconds <= 0) return;
    const { indexes, assignment } = demandShares(problem, demand, layout, typical);
    // While all replicas of a model change, its requests wait for the new ones.
    const waits = (kind: number) => ended > 0 && indexes.length === 0 && own.some((i) => serves(i, kind));
    let [rate, unserved] = [0, 0];
    for (const [kind, one] of typical.entries())
      if ((assignment.served[kind] ?? 0) > 0 || waits(kind)) rate += one;
      else unserved += one * (unservedS[kind] ?? 0);
    // Without load, the capacity is unlimited. Without replicas, a backlog waits.
    const unloaded = indexes.length > 0 ? Number.POSITIVE_INFINITY : 0;
    const flow = assignment.served.reduce((sum, one) => sum + one, 0);
    const capacity = assignment.load > 0 ? flow / assignment.load : unloaded;
    last = { rate, capacity };
    area += (unserved + servedSeconds(problem, { indexes, assignment })) * seconds;
    const after = waiting + (rate - capacity) * seconds;
    if (after >= 0) area += ((waiting + after) / 2) * seconds;
    else if (Number.isFinite(capacity)) area += waiting ** 2 / (2 * (capacity - rate));
    waiting = Math.max(0, Number.isFinite(after) ? after : 0);
  };
  for (let step = 0; step < demand.mean.length; step++) {
    const typical = midDemand(demand, step);
    if (at === undefined || step < at || !changes) {
      phase(at !== undefined && step >= at ? to : running, typical, slotS);
      continue;
    }
    const since = (step - at) * slotS;
    const dark = Math.max(0, Math.min(slotS, darkS - since));
    const parts = Math.min(waves, PARTS_MAX);
    const partS = darkS / parts;
    for (let part = 0; part < parts; part++) {
      const seconds = Math.min(since + dark, (part + 1) * partS) - Math.max(since, part * partS);
      // New replicas of earlier waves serve. Replicas of the current wave do not serve. Replicas of later waves serve
      // as before.
      const done = part / parts;
      phase(
        meanwhile(running, to, least, done, Math.min(1, done + Math.max(1, wave) / Math.max(1, ended))),
        typical,
        seconds,
      );
    }
    phase(to, typical, slotS - dark);
  }
  if (waiting === 0 || !Number.isFinite(last.capacity)) return area;
  const spare = Math.max(last.capacity - last.rate, last.capacity * SPARE_MIN);
  const drainS = Math.min(BEYOND_S, waiting / spare);
  return area + drainS * (waiting - (spare * drainS) / 2);
}

/**
 * Upper bound of the time of one served request, by kind: it waits during the horizon and as long as a backlog is
 * followed, and then takes the time of the slowest option at its highest load.
 */
export function unservedSeconds(problem: FollowProblem, { model, kinds, mean }: ForecastDemand): number[] {
  const waitS = mean.length * problem.slotS + BEYOND_S;
  const own = optionsOf(problem, model).flatMap((i) => problem.options[i] ?? []);
  return kinds.map((_, kind) => {
    const times = own.map(({ rates, latencyS }) => {
      const rate = rates[kind] ?? 0;
      const longestS = (latencyS[kind] ?? 0) + waitFactor(LOAD_MAX) / (rate || 1);
      return rate > 0 && Number.isFinite(longestS) ? longestS : 0;
    });
    return waitS + Math.max(0, ...times);
  });
}

/** Mean wait of Poisson arrivals at this load, in service times. */
const waitFactor = (load: number): number => load / (2 * (1 - load));

/**
 * Replicas during a change. `done`: share of the new replicas that already serve. `ended`: share of the ending replicas
 * that no longer serve.
 */
function meanwhile(running: Layout, to: Layout, least: Layout, done: number, ended: number): Layout {
  return least.map((kept, i) => {
    const [before, after] = [(running[i] ?? 0) - kept, (to[i] ?? 0) - kept];
    return kept + before * (1 - ended) + after * done;
  });
}

/**
 * Demand halfway between the expected and the high demand, because a layout that just fits the mean would have a queue
 * in every other slot.
 */
export function midDemand({ mean, high }: Pick<ForecastDemand, 'mean' | 'high'>, step: number): number[] {
  return (mean[step] ?? []).map((one, kind) => (one + (high[step]?.[kind] ?? one)) / 2);
}

/**
 * Mean number of requests in progress, by Little's law. The time of a request is its latency without queueing, plus the
 * wait of Poisson arrivals at replicas of that load.
 */
function servedSeconds({ options }: FollowProblem, { indexes, assignment }: Shares): number {
  return indexes.reduce((sum, i, k) => {
    const load = Math.min(LOAD_MAX, assignment.loads[k] ?? 0);
    const flow = assignment.flow[k] ?? [];
    const { rates, latencyS } = options[i] ?? { rates: [], latencyS: [] };
    const wait = waitFactor(load);
    return (
      sum +
      flow.reduce(
        (all, amount, j) => (amount > 0 ? all + amount * ((latencyS[j] ?? 0) + wait / (rates[j] || 1)) : all),
        0,
      )
    );
  }, 0);
}
