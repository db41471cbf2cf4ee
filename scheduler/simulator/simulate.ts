import type { Policy } from '../../shared/routing/routing-policy.ts';
import { SchedulerError } from '../errors.ts';
import { gpusOf } from '../roofline/parallelism.ts';
import type { StepModel } from '../roofline/step-model.ts';
import type { SimulatedEngineLimits } from './engine-limits.ts';
import { type Distribution, distribution } from './latency-distribution.ts';
import { openReplica, type PrefillSide, type ServingEngine } from './prefill-decode-pair.ts';
import { seededRandom } from './random.ts';
import type { Requests } from './request-arrivals.ts';
import type { SimulatedEngine } from './simulated-engine.ts';
import { policyNamed, type SimulatedReplica } from './simulated-policies.ts';

export interface ReplicaGroup {
  step: StepModel;
  /** Prefill engine, if each replica is a disaggregated pair; `step` is then that of the decode engine. */
  prefill?: PrefillSide;
  replicas: number;
  /** Relative share of the traffic that each replica gets; only ratios between groups count. */
  weight: number;
}

interface Simulation {
  /** Name of the model, which is passed to the policy. */
  model: string;
  groups: readonly ReplicaGroup[];
  requests: Requests;
  limits: SimulatedEngineLimits;
  /** A name that `policyNamed` knows, or any policy of shared/routing over the replicas. */
  policy: string | ((replicas: readonly SimulatedReplica[]) => { policy: Policy; readsLoad: boolean });
  seed: number;
  /** If set, other replicas compute the prompts, and keys and values cross a network of `bytesPerSecond`. */
  prefill?: { groups: readonly ReplicaGroup[]; bytesPerSecond: number };
}

export interface SimulationResult {
  requests: number;
  refused: number;
  /** Seconds from the first arrival to the end of the last request, refused ones included. */
  durationS: number;
  /** Ended requests per second of `durationS`. */
  requestsPerS: number;
  /** Output tokens per second of `durationS`. */
  tokensPerS: number;
  ttft: Distribution;
  /** Time per output token after the first, of responses with at least two tokens. */
  tpot: Distribution;
  latency: Distribution;
  /** Seconds of each request that ended. */
  latencies: Float64Array;
  /** Mean share of used blocks, over the time in which replicas were in a step. */
  kvUse: number;
  kvPeak: number;
  /** Share of `durationS` in which replicas were in a step, weighted by their GPUs. */
  busy: number;
  preemptions: number;
  /** Share of prompt tokens that prefix caches held. */
  prefixHit: number;
  /** Joules that all GPUs used in `durationS`: an estimate, see docs/scheduling.md. */
  energyJ: number;
  simulatedTokens: number;
  byGroup: { requests: number; busy: number; kvUse: number }[];
}

interface Times {
  first: Float64Array;
  end: Float64Array;
}

/** Simulates all requests until they end. The same input gives the same output. */
export function simulate(simulation: Simulation): SimulationResult {
  const { requests } = simulation;
  if (simulation.groups.every(({ replicas }) => replicas === 0))
    throw new SchedulerError('bad_input', `${simulation.model}: the simulation has no replica`);
  const arrival = requests.arrival;
  if (simulation.prefill === undefined) {
    const stage = new Stage(simulation, simulation.groups, requests.count);
    for (let i = 0; i < requests.count; i++)
      stage.route(i, arrival[i] ?? 0, requests.input[i] ?? 1, requests.output[i] ?? 1, false, requests.hashes?.[i]);
    stage.finish();
    return summarise(simulation, [stage], stage.times);
  }
  return simulateDisaggregated(simulation, simulation.prefill);
}

/**
 * Simulates two pools: one computes the prompt and the first token, the other continues the response after keys and
 * values have arrived.
 */
function simulateDisaggregated(simulation: Simulation, prefill: NonNullable<Simulation['prefill']>): SimulationResult {
  const { requests } = simulation;
  const first = new Stage(simulation, prefill.groups, requests.count);
  for (let i = 0; i < requests.count; i++)
    first.route(i, requests.arrival[i] ?? 0, requests.input[i] ?? 1, 1, false, requests.hashes?.[i]);
  first.finish();
  const second = new Stage(simulation, simulation.groups, requests.count);
  const step = prefill.groups[0]?.step;
  const order: { at: number; request: number }[] = [];
  for (let i = 0; i < requests.count; i++) {
    const end = first.times.end[i] ?? Number.NaN;
    if (Number.isNaN(end)) continue;
    order.push({ at: end + (step?.transferSeconds(requests.input[i] ?? 1, prefill.bytesPerSecond) ?? 0), request: i });
  }
  order.sort((a, b) => a.at - b.at || a.request - b.request);
  const times: Times = { first: first.times.first, end: first.times.end.slice() };
  for (const { at, request } of order) {
    const output = requests.output[request] ?? 1;
    if (output > 1) second.route(request, at, requests.input[request] ?? 1, output - 1, true);
  }
  second.finish();
  for (let i = 0; i < requests.count; i++) {
    if ((requests.output[i] ?? 1) > 1) times.end[i] = second.times.end[i] ?? Number.NaN;
  }
  return summarise(simulation, [first, second], times);
}

/** A pool of replicas and the policy that chooses among them. */
class Stage {
  readonly times: Times;
  readonly groups: readonly ReplicaGroup[];
  readonly replicas: { engine: ServingEngine; parts: { step: StepModel; engine: SimulatedEngine }[]; group: number }[] =
    [];
  readonly #candidates: SimulatedReplica[] = [];
  readonly #index = new Map<string, number>();
  readonly #policy: { policy: Policy; readsLoad: boolean };
  readonly #random: () => number;
  readonly #model: string;
  readonly sent: number[];

  constructor(simulation: Simulation, groups: readonly ReplicaGroup[], count: number) {
    this.groups = groups;
    this.#model = simulation.model;
    this.times = { first: new Float64Array(count).fill(Number.NaN), end: new Float64Array(count).fill(Number.NaN) };
    const finished = (request: number, first: number | undefined, end: number) => {
      if (first === undefined) return;
      this.times.first[request] = first;
      this.times.end[request] = end;
    };
    groups.forEach((group, at) => {
      for (let i = 0; i < group.replicas; i++) {
        const { engine, parts } = openReplica(group.step, group.prefill, simulation.limits, finished);
        const session = `${at}-${i}`;
        this.#index.set(session, this.replicas.length);
        this.replicas.push({ engine, parts, group: at });
        const { gpu } = group.step.deployment;
        this.#candidates.push({
          session,
          provider: 'simulated',
          cluster: gpu.id,
          tier: 'stable',
          gpu: gpu.id,
          weight: group.weight,
          get inFlight() {
            return engine.load;
          },
        });
      }
    });
    this.sent = groups.map(() => 0);
    const { policy } = simulation;
    this.#policy = typeof policy === 'string' ? policyNamed(policy, this.#candidates) : policy(this.#candidates);
    this.#random = seededRandom(simulation.seed ^ 0x5eed);
  }

  route(request: number, at: number, input: number, output: number, stored: boolean, hashes?: readonly number[]): void {
    if (this.#policy.readsLoad) for (const { engine } of this.replicas) engine.run(at);
    const asked = { model: this.#model, priority: 'interactive' as const, inputTokens: input, maxTokens: output };
    const chosen = this.#policy.policy.pick(this.#candidates, asked, this.#random);
    const index = chosen === undefined ? undefined : this.#index.get(chosen.session);
    const replica = index === undefined ? undefined : this.replicas[index];
    if (replica === undefined) return;
    this.sent[replica.group] = (this.sent[replica.group] ?? 0) + 1;
    replica.engine.push(request, at, input, output, stored, hashes);
  }

  finish(): void {
    for (const { engine } of this.replicas) engine.run(Number.POSITIVE_INFINITY);
  }
}

/** Power of an idle GPU, as a share of its power limit. */
const IDLE_SHARE = 0.2;
/**
 * Power of a GPU that is bound by memory, as a share of its power limit. A GPU that is bound by arithmetic draws its
 * limit.
 */
const MEMORY_BOUND_SHARE = 0.7;

function summarise(simulation: Simulation, stages: readonly Stage[], times: Times): SimulationResult {
  const { requests } = simulation;
  const start = requests.arrival[0] ?? 0;
  const ttft: number[] = [];
  const tpot: number[] = [];
  const latency: number[] = [];
  const requestS = (simulation.groups[0]?.step.host.request_ms ?? 0) * 1e-3;
  let last = start;
  let tokens = 0;
  for (let i = 0; i < requests.count; i++) {
    const ended = times.end[i] ?? Number.NaN;
    if (Number.isNaN(ended)) continue;
    const [arrived, output] = [requests.arrival[i] ?? 0, requests.output[i] ?? 1];
    const [first, end] = [(times.first[i] ?? 0) + requestS, ended + requestS];
    ttft.push(first - arrived);
    latency.push(end - arrived);
    if (output > 1) tpot.push((end - first) / (output - 1));
    tokens += output;
    if (end > last) last = end;
  }
  // A request may be refused late, because its response outgrew the memory. It kept its replica busy until then.
  for (const { replicas } of stages) for (const { engine } of replicas) last = Math.max(last, engine.clock);
  const durationS = Math.max(last - start, 1e-9);
  const totals = totalsOf(stages, durationS);
  return {
    requests: requests.count,
    refused: requests.count - latency.length,
    durationS,
    requestsPerS: latency.length / durationS,
    tokensPerS: tokens / durationS,
    ttft: distribution(Float64Array.from(ttft)),
    tpot: distribution(Float64Array.from(tpot)),
    latency: distribution(Float64Array.from(latency)),
    latencies: Float64Array.from(latency),
    ...totals,
  };
}

function totalsOf(stages: readonly Stage[], durationS: number) {
  let [gpus, gpuBusy, busy, kvBusy, kvPeak, preemptions, energyJ, simulatedTokens] = [0, 0, 0, 0, 0, 0, 0, 0];
  let [cached, prompts] = [0, 0];
  const byGroup: { requests: number; busy: number; kvUse: number }[] = [];
  for (const stage of stages) {
    stage.groups.forEach((_, at) => {
      const mine = stage.replicas.filter((replica) => replica.group === at).flatMap(({ parts }) => parts);
      const sum = (field: 'busy' | 'kvBusy') => mine.reduce((total, { engine }) => total + engine.counters[field], 0);
      for (const { step, engine } of mine) {
        const { counters } = engine;
        const { gpu } = step.deployment;
        const each = gpusOf(step.deployment);
        gpus += each;
        gpuBusy += each * counters.busy;
        const active = counters.busy * MEMORY_BOUND_SHARE + counters.peakCompute * (1 - MEMORY_BOUND_SHARE);
        energyJ +=
          each * gpu.watts * (IDLE_SHARE * Math.max(0, durationS - counters.busy) + Math.min(active, counters.busy));
        preemptions += counters.preemptions;
        cached += counters.cachedTokens;
        prompts += counters.cachedTokens + counters.prefillTokens;
        simulatedTokens += counters.decodeTokens + counters.prefillTokens;
        kvPeak = Math.max(kvPeak, counters.kvPeak);
      }
      busy += sum('busy');
      kvBusy += sum('kvBusy');
      const share = mine.length === 0 ? 0 : sum('busy') / (mine.length * durationS);
      byGroup.push({
        requests: stage.sent[at] ?? 0,
        busy: share,
        kvUse: sum('busy') === 0 ? 0 : sum('kvBusy') / sum('busy'),
      });
    });
  }
  return {
    kvUse: busy === 0 ? 0 : kvBusy / busy,
    kvPeak,
    busy: gpus === 0 ? 0 : gpuBusy / (gpus * durationS),
    preemptions,
    prefixHit: prompts === 0 ? 0 : cached / prompts,
    energyJ,
    simulatedTokens,
    byGroup,
  };
}
