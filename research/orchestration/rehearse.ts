import type { RateTable } from '../../scheduler/assignment/rate-table.ts';
import type { Dispatch } from '../../scheduler/follow/dispatch.ts';
import type { SimulatedEngineLimits } from '../../scheduler/simulator/engine-limits.ts';
import { exponential, seededRandom } from '../../scheduler/simulator/random.ts';
import type { Requests } from '../../scheduler/simulator/request-arrivals.ts';
import type { DeploymentPlan } from './deployment-plan.ts';
import { Fleet } from './fleet.ts';
import type { OrchestrationDecision, RunningRequest } from './orchestrator.ts';
import { type PlacedReplica, place } from './placement.ts';

/** Most requests of a first rehearsal: some ten milliseconds of simulation. */
export const SHORT_REQUESTS = 8000;
/**
 * Most requests of the deciding rehearsal. At 400 requests/s the first one ends after 20 s, in which the queue of a
 * plan that is a tenth too slow is still short.
 */
export const LONG_REQUESTS = 100_000;
/** Bytes/s of keys and values over one link of InfiniBand. */
const KV_BYTES_PER_S = 25e9;
/** Engines have begun a step by this time. */
const BEGUN_S = 1e-9;

/** The requests of a rehearsal. */
export interface Rehearsal {
  requests: Requests;
  kinds: Int32Array;
  /** The first requests, which are in progress; the others are still to arrive. */
  begun: readonly RunningRequest[];
}

/** The running replicas at the beginning of a rehearsal. */
export interface Start {
  plan: DeploymentPlan;
  running: readonly PlacedReplica[];
}

/**
 * Draws requests of a forecast: Poisson arrivals of each kind, with the lengths of its examples, for `seconds` or until
 * there are `most`. Every plan is rehearsed on the same ones.
 */
export function forecastRequests(
  table: RateTable,
  demand: readonly number[],
  seconds: number,
  seed: number,
  most = SHORT_REQUESTS,
): Rehearsal {
  const total = demand.reduce((sum, one) => sum + one, 0);
  const extent = Math.min(seconds, most / Math.max(total, 1e-9));
  const rows: [number, number, number, number][] = [];
  for (const [j, rate] of demand.entries()) {
    if (!(rate > 0)) continue;
    const random = seededRandom(seed * 31 + j);
    const examples = table.kinds[j]?.examples ?? [];
    for (let now = exponential(random, 1 / rate); now < extent; now += exponential(random, 1 / rate)) {
      const { input, output } = examples[Math.floor(random() * examples.length)] ?? { input: 1, output: 1 };
      rows.push([now, input, output, j]);
    }
  }
  rows.sort((a, b) => a[0] - b[0]);
  return {
    requests: {
      count: rows.length,
      arrival: Float64Array.from(rows, ([at]) => at),
      input: Int32Array.from(rows, ([, input]) => Math.max(1, input)),
      output: Int32Array.from(rows, ([, , output]) => Math.max(1, output)),
    },
    kinds: Int32Array.from(rows, ([, , , kind]) => kind),
    begun: [],
  };
}

/**
 * Inserts the requests in progress before those to arrive. The remaining length of a response is drawn from the
 * examples of its kind that are longer than its current length.
 */
export function withRunningRequests(
  table: RateTable,
  begun: readonly RunningRequest[],
  coming: Rehearsal,
  seed: number,
): Rehearsal {
  if (begun.length === 0) return coming;
  const random = seededRandom(seed);
  // In order of arrival: waiting requests keep their place.
  const sorted = [...begun].sort((a, b) => b.ageS - a.ageS);
  const left = sorted.map(({ kind, answered }) => {
    const longer = (table.kinds[kind]?.examples ?? []).filter(({ output }) => output > answered);
    return Math.max(1, (longer[Math.floor(random() * longer.length)]?.output ?? answered) - answered);
  });
  const { requests } = coming;
  const count = begun.length + requests.count;
  const joined = <T extends Float64Array | Int32Array>(whole: T, first: readonly number[], rest: T): T => {
    whole.set(first);
    whole.set(rest, first.length);
    return whole;
  };
  return {
    begun: sorted,
    kinds: joined(
      new Int32Array(count),
      sorted.map(({ kind }) => kind),
      coming.kinds,
    ),
    requests: {
      count,
      arrival: joined(
        new Float64Array(count),
        sorted.map(({ ageS }) => -ageS),
        requests.arrival,
      ),
      input: joined(
        new Int32Array(count),
        sorted.map(({ tokens, answered }) => tokens - answered),
        requests.input,
      ),
      output: joined(
        new Int32Array(count),
        sorted.map(({ answered }, i) => answered + (left[i] ?? 1)),
        requests.output,
      ),
    },
  };
}

/**
 * Simulates a plan and returns the seconds of a response, as a mean of fourth powers: the goal is the tail, but one
 * request in a hundred of a short rehearsal is chance. With `start`, the running replicas first change to the plan, as
 * they would: their GPUs do not serve for `darkS`, and waiting requests wait here. Infinite if a request is lost, and
 * as soon as it is certain to exceed `mostS`.
 */
export function simulatePlan(
  table: RateTable,
  limits: SimulatedEngineLimits,
  { plan, dispatch, darkS = 0 }: { plan: DeploymentPlan; dispatch: Dispatch; darkS?: number },
  { requests, kinds, begun }: Rehearsal,
  { start, mostS = Number.POSITIVE_INFINITY }: { start?: Start; mostS?: number } = {},
): number {
  if (requests.count === 0) return 0;
  let [sum, answered] = [0, 0];
  const most = mostS ** 4 * requests.count;
  const ended = (_request: number, latencyS: number) => {
    const square = latencyS * latencyS;
    sum += square * square;
    answered++;
  };
  const fleet = new Fleet({ table, limits, requests, judged: kinds, kvBytesPerS: KV_BYTES_PER_S, ended });
  const decision: OrchestrationDecision = { plan, dispatch, darkS, running: 'migrate', note: '' };
  if (start !== undefined) {
    const now = { ...decision, plan: start.plan, dispatch: { kind: 'least-loaded' } as const };
    fleet.apply(now, { replicas: [...start.running], kept: new Set() }, 0, 0);
    for (const [i, one] of begun.entries()) fleet.resume(i, one, (requests.output[i] ?? 1) - one.answered);
    fleet.run(BEGUN_S);
  }
  fleet.apply(decision, place(plan, start?.running ?? [], table.site), 0, darkS);
  for (let i = begun.length; i < requests.count; i++) {
    if (sum > most) return Number.POSITIVE_INFINITY;
    fleet.arrive(i);
  }
  fleet.run(Number.POSITIVE_INFINITY);
  return answered < requests.count ? Number.POSITIVE_INFINITY : (sum / requests.count) ** (1 / 4);
}
