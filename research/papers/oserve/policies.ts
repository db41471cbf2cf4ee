import { candidateLayoutsBy } from '../../../scheduler/follow/candidate-layouts.ts';
import type { FollowProblem } from '../../../scheduler/follow/follow-problem.ts';
import { chooseForecaster } from '../../../scheduler/forecast/choose-forecaster.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { loadSolver } from '../../../scheduler/solver/highs.ts';
import { kindClassifier } from '../../../scheduler/workload/request-kinds.ts';
import { type DeploymentPlan, keyOf } from '../../orchestration/deployment-plan.ts';
import type { Orchestrator } from '../../orchestration/orchestrator.ts';
import { dynamo } from '../../orchestration/orchestrators/dynamo.ts';
import { live } from '../../orchestration/orchestrators/live.ts';
import { type OursOptions, ours } from '../../orchestration/orchestrators/ours.ts';
import { rates } from '../../orchestration/orchestrators/rates-of-slot.ts';
import { reload } from '../../orchestration/orchestrators/reload.ts';
import { llumnix, unchanged } from '../../orchestration/orchestrators/unchanged.ts';
import type { PlacedReplica } from '../../orchestration/placement.ts';
import { switchCost } from '../../orchestration/switch-cost.ts';
import { raceTimeline, runTimeline, type TimelineResult, type TimelineSetup } from '../../orchestration/timeline.ts';
import { foreseen, foresight } from './foresight.ts';
import { asJudged, lengthsOf, meanDemand, planLoad, type Setup, SLOT_S, uniformsOf } from './setups.ts';

/** Bytes/s of one link between replicas: an NDR InfiniBand port carries 50 GB/s, half of it for keys and values. */
const KV_BYTES_PER_S = 25e9;
/** Uniform deployments that a baseline tries by simulation: the least loaded ones. */
const TRIED = 4;

const solve = await loadSolver();

export const POLICIES = [
  /** The uniform deployment that was best on the minutes before the span, as for all baselines. */
  'static, TP only',
  'static',
  /** The best uniform deployment on the span itself, which no operator could know. */
  'static, in hindsight',
  'reload',
  'Llumnix',
  'Dynamo',
  /** Kinds as a gateway judges them at arrival. */
  'ours',
  /** The kinds of arriving requests are known, responses included. */
  'ours, kinds known',
  /**
   * Our first deployment, with requests sent to the least loaded replica regardless of their kind, as gateways do
   * without kinds.
   */
  'ours, kinds ignored',
  /** The next minutes are known, request by request, and a switch costs nothing: an upper bound of the gain. */
  'ours, foreseeing',
  /** The planner of `otela-plan watch --forecast`. */
  'live planner',
] as const;
export type PolicyName = (typeof POLICIES)[number];

const timelineOf = (setup: Setup, orchestrator: Orchestrator, judged = setup.judged): TimelineSetup => ({
  table: setup.table,
  limits: DEFAULT_LIMITS,
  requests: setup.requests,
  judged,
  kinds: setup.kinds,
  slotS: SLOT_S,
  before: setup.before,
  orchestrator,
  kvBytesPerS: KV_BYTES_PER_S,
});

export const run = (setup: Setup, orchestrator: Orchestrator, judged?: Int32Array): TimelineResult =>
  runTimeline(timelineOf(setup, orchestrator, judged));

/** `p99S`: returns undefined as soon as its P99 is certain to exceed it. */
type Race = (plan: DeploymentPlan, p99S: number) => TimelineResult | undefined;

/** The uniform deployment with the lowest P99. `first` is tried first, so that the others are cut short. */
function bestOf(setup: Setup, race: Race, { tpOnly = false, first = '' } = {}): TimelineResult {
  const { table } = setup;
  const all = uniformsOf(table, table.site.gpus).filter(([group]) => !tpOnly || group?.shape.pp === 1);
  const tried = all
    .map((plan) => ({ plan, load: planLoad(table, plan, setup.demand) }))
    .sort((a, b) => a.load - b.load)
    .slice(0, TRIED)
    .sort((a, b) => Number(keyOf(b.plan) === first) - Number(keyOf(a.plan) === first));
  const best = tried.reduce<TimelineResult | undefined>((least, { plan }) => {
    const p99S = least?.latency.p99 ?? Number.POSITIVE_INFINITY;
    const result = race(plan, p99S);
    return result !== undefined && result.latency.p99 < p99S ? result : least;
  }, undefined);
  if (best === undefined) throw new Error(`${setup.name}: no uniform deployment has room`);
  return best;
}

/**
 * Cached runs of fixed deployments: the same ones are used as static, with only tensor parallelism, and as the first
 * deployment of other policies.
 */
class StillRuns {
  readonly #setup: Setup;
  readonly #known = new Map<string, TimelineResult>();
  /** Lower bound of the P99 of runs that were cut short. */
  readonly #above = new Map<string, number>();

  constructor(setup: Setup) {
    this.#setup = setup;
  }

  readonly race: Race = (plan, p99S) => {
    const key = keyOf(plan);
    const known = this.#known.get(key);
    if (known !== undefined || p99S <= (this.#above.get(key) ?? 0)) return known;
    const orchestrator = unchanged('static', plan, { kind: 'least-loaded' });
    const result = raceTimeline(timelineOf(this.#setup, orchestrator), p99S);
    if (result === undefined) this.#above.set(key, p99S);
    else this.#known.set(key, result);
    return result;
  };
}

/** Runs any orchestrator on one setup until its P99 is certain to exceed a limit. */
export const raceFor = (setup: Setup) => (orchestrator: Orchestrator, p99S: number) =>
  raceTimeline(timelineOf(setup, orchestrator), p99S);

/** The deployment that was best on the minutes before the span. */
export function staticOf(setup: Setup): TimelineResult {
  const past = lately(setup);
  return run(setup, unchanged('static', planOf(bestOf(past, new StillRuns(past).race)), { kind: 'least-loaded' }));
}

export const bestStatic = (setup: Setup): TimelineResult => bestOf(setup, new StillRuns(setup).race);

export interface OursSettings
  extends Partial<
    Pick<
      OursOptions,
      'forecaster' | 'initial' | 'foresee' | 'horizon' | 'margin' | 'fixedPlan' | 'untyped' | 'plans' | 'confirm'
    >
  > {
  /** Seconds of every switch; absent: from the plan of the transfer. */
  switchS?: number;
  judged?: Int32Array;
}

/** True kinds and the span's mean demand: for claims that a judge's errors would cover. */
export const knowing = ({ kinds, demand }: Setup): OursSettings => ({ judged: kinds, initial: demand });

/** Number of minutes before the span that decide our first deployment. */
const FIRST_SLOTS = 10;

const hasPast = ({ before }: Setup): boolean => before.counts.some(({ length }) => length > 0);

/** Kinds are those that a gateway judges at arrival, unless `judged` says otherwise. */
export function runOurs(given: Setup, { switchS, judged, ...settings }: OursSettings = {}): TimelineResult {
  const setup = judged === undefined ? asJudged(given) : given;
  const { table } = setup;
  const transferS = (running: readonly PlacedReplica[], to: DeploymentPlan) =>
    switchCost(running, to, table.site, 'peer transfer').seconds;
  const orchestrator = ours({
    table,
    limits: DEFAULT_LIMITS,
    forecaster: chooseForecaster(setup.before, setup.seed).fitted,
    horizon: 3,
    margin: 0.3,
    initial: hasPast(setup) ? rates(setup.before, FIRST_SLOTS) : setup.demand,
    ...settings,
    switchS: switchS === undefined ? transferS : () => switchS,
  });
  return run(setup, orchestrator, judged);
}

/** The planner of `otela-plan watch --forecast`, with kinds as judged at arrival. */
export function runLivePlanner(given: Setup): TimelineResult {
  const setup = asJudged(given);
  const { table } = setup;
  const switchS = (running: readonly PlacedReplica[], to: DeploymentPlan) =>
    switchCost(running, to, table.site, 'peer transfer').seconds;
  const candidates = (problem: FollowProblem) => candidateLayoutsBy(solve, problem);
  return run(setup, live({ table, limits: DEFAULT_LIMITS, candidates, switchS, initial: setup.demand }));
}

/** The minutes before the span as a setup, for choices; without a past the span itself: then choices have hindsight. */
export function lately(setup: Setup): Setup {
  const { lately: requests, table } = setup;
  if (requests === undefined || requests.count === 0) return setup;
  const kinds = Int32Array.from(lengthsOf(requests), kindClassifier(table.kinds));
  const seconds = (requests.arrival[requests.count - 1] ?? 0) + 1;
  return {
    ...setup,
    name: `${setup.name}, before`,
    requests,
    kinds,
    judged: kinds,
    before: { ...setup.before, counts: setup.before.names.map(() => []) },
    demand: meanDemand(table, requests, seconds),
  };
}

/** Runs all policies on one setup, in their order. */
export function runPolicies(setup: Setup): Record<PolicyName, TimelineResult> {
  const still = new StillRuns(setup).race;
  const past = lately(setup);
  const pastStill = new StillRuns(past).race;
  const hindsight = bestOf(setup, still);
  const whole = (plan: DeploymentPlan) => {
    const result = still(plan, Number.POSITIVE_INFINITY);
    if (result === undefined) throw new Error('a run without a limit has given up');
    return result;
  };
  const chosen = planOf(bestOf(past, pastStill));
  const own = runOurs(setup);
  return {
    'static, TP only': whole(planOf(bestOf(past, pastStill, { tpOnly: true }))),
    static: whole(chosen),
    'static, in hindsight': hindsight,
    reload: run(setup, reload(setup.table, 3, 0.1, past.demand)),
    // With a single replica there is nothing to move.
    Llumnix: replicasOf(chosen) < 2 ? whole(chosen) : run(setup, llumnix(chosen)),
    Dynamo: runDynamo(setup, past, pastStill, whole),
    ours: own,
    'ours, kinds known': runOurs(setup, { judged: setup.kinds }),
    'ours, kinds ignored': whole(planOf(own)),
    'ours, foreseeing': runOurs(setup, {
      judged: setup.kinds,
      forecaster: foresight(setup, 0),
      foresee: (...of) => foreseen(setup, ...of),
      switchS: 0,
      confirm: 1,
      margin: 0,
    }),
    'live planner': runLivePlanner(setup),
  };
}

/** Dynamo's operator chooses on the past: a uniform deployment, with separate replicas for prompts or without. */
function runDynamo(
  setup: Setup,
  past: Setup,
  pastStill: Race,
  whole: (plan: DeploymentPlan) => TimelineResult,
): TimelineResult {
  const race: Race = (plan, p99S) =>
    replicasOf(plan) < 2
      ? pastStill(plan, p99S)
      : raceTimeline(timelineOf(past, dynamo(past.table, plan, past.demand)), p99S);
  const [apart, together] = [bestOf(past, race), bestOf(past, pastStill)];
  const plan = planOf(apart);
  if (together.latency.p99 <= apart.latency.p99 || replicasOf(plan) < 2) return whole(planOf(together));
  return run(setup, dynamo(setup.table, plan, past.demand));
}

/** The first deployment of a run. */
const planOf = ({ slots }: TimelineResult): DeploymentPlan => slots[0]?.plan ?? [];
const replicasOf = (plan: DeploymentPlan): number => plan.reduce((sum, { replicas }) => sum + replicas, 0);
