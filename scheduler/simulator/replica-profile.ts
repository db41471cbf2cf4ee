import type { StepModel } from '../roofline/step-model.ts';
import type { SimulatedEngineLimits } from './engine-limits.ts';
import type { LengthDistribution } from './length-distribution.ts';
import { openReplica, type PrefillSide } from './prefill-decode-pair.ts';
import { seededRandom } from './random.ts';
import { drawRequests, type Requests } from './request-arrivals.ts';

/** Latency of one replica at one load. */
interface LoadPoint {
  /** Requests/s. */
  rate: number;
  /** Mean seconds from arrival to last token. */
  latencyS: number;
}

interface Profile {
  /** Requests that end per second while requests always wait. */
  capacity: number;
  points: LoadPoint[];
}

/**
 * Loads at which a replica is simulated, as shares of its capacity. At 0, requests run one at a time. Above the last
 * level, a simulation would mainly measure the queue.
 */
export const LOAD_LEVELS = [0, 0.25, 0.5, 0.7, 0.85, 0.95];

/** Number of requests that are simulated one at a time: enough for the mean of their lengths. */
const ALONE_SAMPLE = 600;

/** Minimum number of requests of a simulation: several batches at the engine's usual limit of sequences. */
const SAMPLE = 1200;
/** Maximum number of requests of a simulation, because a plan waits for it. */
const SAMPLE_MAX = 20_000;
const sample = ({ limits }: ProfileOf) => Math.min(SAMPLE_MAX, Math.max(SAMPLE, 4 * limits.maxSequences));
/**
 * A simulated backlog has this many times as many requests as other simulations. The longer simulation lowers the error
 * of a capacity by half a percent, which is worthwhile because capacities decide between plans.
 */
const BACKLOG_SAMPLES = 4;

interface ProfileOf {
  step: StepModel;
  /** Prefill engine, if the replica is a disaggregated pair; `step` is then that of the decode engine. */
  prefill?: PrefillSide;
  limits: SimulatedEngineLimits;
  input: LengthDistribution;
  output: LengthDistribution;
  /** Coefficient of variation of the gaps between arrivals. */
  cv: number;
}

/**
 * Measures a replica by simulation; the same input gives the same result. `levels` may be empty if only the capacity
 * counts. `known`: capacity from an earlier profile.
 */
export function profile(of: ProfileOf, levels: readonly number[] = LOAD_LEVELS, known?: number): Profile {
  const capacity = known ?? backlogRate(of);
  const points = levels.map((level) => ({
    rate: level * capacity,
    latencyS: level === 0 ? aloneLatency(of) : meanLatency(of, level * capacity),
  }));
  return { capacity, points };
}

interface Drawn {
  of: ProfileOf;
  backlog: Requests;
  /**
   * Requests that arrive at 1 request/s, as a Poisson process or burstier. For other rates, their arrival times are
   * scaled.
   */
  atOne: Requests;
  alone: Requests;
}

/**
 * Requests by the distribution of prompt lengths. They are reused, because a planner simulates one model's requests on
 * many kinds of GPU.
 */
const drawn = new WeakMap<LengthDistribution, Drawn>();

function drawnFor(of: ProfileOf): Drawn {
  const known = drawn.get(of.input);
  if (known !== undefined && known.of.output === of.output && known.of.cv === of.cv && sample(known.of) === sample(of))
    return known;
  const { input, output, cv } = of;
  const backlog = { arrivals: { kind: 'backlog' }, input, output } as const;
  const gamma = { arrivals: { kind: 'gamma', rate: 1, cv: Math.max(cv, 0.05) }, input, output } as const;
  const fresh = {
    of,
    backlog: drawRequests(backlog, { count: BACKLOG_SAMPLES * sample(of) }, seededRandom(11)),
    atOne: drawRequests(gamma, { count: sample(of) }, seededRandom(12)),
    alone: drawRequests(backlog, { count: ALONE_SAMPLE }, seededRandom(12)),
  };
  drawn.set(input, fresh);
  return fresh;
}

/**
 * Requests/s of a long backlog, between the ends of the first and the last 20 % of its requests. This excludes the
 * first batch, which begins at one time, and the last responses, which run in a nearly empty batch.
 */
function backlogRate(of: ProfileOf): number {
  const { step, limits } = of;
  const requests = drawnFor(of).backlog;
  const ends: number[] = [];
  const { engine: replica } = openReplica(step, of.prefill, limits, (_request, first, end) => {
    if (first !== undefined) ends.push(end);
  });
  for (let i = 0; i < requests.count; i++) replica.push(i, 0, requests.input[i] ?? 1, requests.output[i] ?? 1);
  replica.run(Number.POSITIVE_INFINITY);
  const [from, to] = [ends[Math.floor(ends.length * 0.2)], ends[Math.floor(ends.length * 0.8)]];
  if (from === undefined || to === undefined) return 0;
  if (to <= from) return ends.length / (ends.at(-1) ?? Number.POSITIVE_INFINITY);
  // Responses of equal length end at the same time: such a group is counted completely or not at all.
  return ends.filter((end) => end > from && end <= to).length / (to - from);
}

/** Mean seconds of a request that arrives at an empty replica. */
function aloneLatency(of: ProfileOf): number {
  const { step, limits } = of;
  const requests = drawnFor(of).alone;
  let [sum, counted] = [0, 0];
  let started = 0;
  const { engine: replica } = openReplica(step, of.prefill, limits, (_request, first, end) => {
    if (first === undefined) return;
    sum += end - started;
    counted++;
  });
  for (let i = 0; i < requests.count; i++) {
    started = replica.clock;
    replica.push(i, started, requests.input[i] ?? 1, requests.output[i] ?? 1);
    replica.run(Number.POSITIVE_INFINITY);
  }
  return counted === 0 ? Number.POSITIVE_INFINITY : sum / counted + step.host.request_ms * 1e-3;
}

function meanLatency(of: ProfileOf, rate: number): number {
  const { step, limits } = of;
  const requests = drawnFor(of).atOne;
  const { count } = requests;
  const at = (i: number) => (requests.arrival[i] ?? 0) / rate;
  // The first requests do not count, because they find an empty replica.
  const from = Math.floor(count * 0.15);
  let sum = 0;
  let counted = 0;
  const { engine: replica } = openReplica(step, of.prefill, limits, (request, first, end) => {
    if (first === undefined || request < from) return;
    sum += end - at(request);
    counted++;
  });
  for (let i = 0; i < requests.count; i++) replica.push(i, at(i), requests.input[i] ?? 1, requests.output[i] ?? 1);
  replica.run(Number.POSITIVE_INFINITY);
  return counted === 0 ? Number.POSITIVE_INFINITY : sum / counted + step.host.request_ms * 1e-3;
}
