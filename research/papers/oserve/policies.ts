import { chooseForecaster } from '../../../scheduler/forecast/choose-forecaster.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { type DeploymentPlan, keyOf } from '../../orchestration/deployment-plan.ts';
import type { Orchestrator } from '../../orchestration/orchestrator.ts';
import { dynamo } from '../../orchestration/orchestrators/dynamo.ts';
import { type OursOptions, ours } from '../../orchestration/orchestrators/ours.ts';
import { reload } from '../../orchestration/orchestrators/reload.ts';
import { llumnix, unchanged } from '../../orchestration/orchestrators/unchanged.ts';
import type { PlacedReplica } from '../../orchestration/placement.ts';
import { switchCost } from '../../orchestration/switch-cost.ts';
import { raceTimeline, runTimeline, type TimelineResult, type TimelineSetup } from '../../orchestration/timeline.ts';
import { foreseen, foresight } from './foresight.ts';
import { planLoad, type Setup, SLOT_S, uniformsOf } from './setups.ts';

/** Bytes/s of one link between replicas: an NDR InfiniBand port carries 50 GB/s, half of it for keys and values. */
const KV_BYTES_PER_S = 25e9;
/**
 * Uniform deployments that a baseline tries: the least loaded ones, by simulation of the same span on which it is
 * judged.
 */
const TRIED = 4;

export const POLICIES = [
  'static, TP only',
  'static',
  'reload',
  'Llumnix',
  'Dynamo',
  'ours',
  /**
   * Our first deployment, with requests sent to the least loaded replica regardless of their kind, as gateways do
   * without kinds.
   */
  'ours, kinds ignored',
  /** The next minutes are known, request by request, and a switch costs nothing: an upper bound of the gain. */
  'ours, foreseeing',
] as const;
export type PolicyName = (typeof POLICIES)[number];

const timelineOf = (setup: Setup, orchestrator: Orchestrator, judged = setup.kinds): TimelineSetup => ({
  table: setup.table,
  limits: DEFAULT_LIMITS,
  requests: setup.requests,
  judged,
  slotS: SLOT_S,
  before: setup.before,
  orchestrator,
  kvBytesPerS: KV_BYTES_PER_S,
});

export const run = (setup: Setup, orchestrator: Orchestrator, judged?: Int32Array): TimelineResult =>
  runTimeline(timelineOf(setup, orchestrator, judged));

/** `p99S`: returns undefined as soon as its P99 is certain to exceed it. */
type Race = (plan: DeploymentPlan, p99S: number) => TimelineResult | undefined;

/**
 * Each baseline at its best uniform deployment for this span by P99, which no operator could know. `first` is tried
 * first, so that the others are cut short.
 */
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

export const bestStatic = (setup: Setup): TimelineResult => bestOf(setup, new StillRuns(setup).race);

export interface OursSettings
  extends Partial<
    Pick<OursOptions, 'forecaster' | 'foresee' | 'horizon' | 'margin' | 'fixedPlan' | 'untyped' | 'plans' | 'confirm'>
  > {
  /** Seconds of every switch; absent: from the plan of the transfer. */
  switchS?: number;
  judged?: Int32Array;
}

export function runOurs(setup: Setup, { switchS, judged, ...settings }: OursSettings = {}): TimelineResult {
  const { table } = setup;
  const transferS = (running: readonly PlacedReplica[], to: DeploymentPlan) =>
    switchCost(running, to, table.site, 'peer transfer').seconds;
  const orchestrator = ours({
    table,
    limits: DEFAULT_LIMITS,
    forecaster: chooseForecaster(setup.before, setup.seed).fitted,
    horizon: 3,
    margin: 0.3,
    initial: setup.demand,
    ...settings,
    switchS: switchS === undefined ? transferS : () => switchS,
  });
  return run(setup, orchestrator, judged);
}

/** Runs all policies on one setup, in their order. */
export function runPolicies(setup: Setup): Record<PolicyName, TimelineResult> {
  const still = new StillRuns(setup).race;
  const tpOnly = bestOf(setup, still, { tpOnly: true });
  const best = bestOf(setup, still);
  const first = keyOf(planOf(best));
  /** A policy that moves requests between replicas; with a single replica it equals static. */
  const moving = (of: (plan: DeploymentPlan) => Orchestrator) =>
    bestOf(
      setup,
      (plan, p99S) => (replicasOf(plan) < 2 ? still(plan, p99S) : raceTimeline(timelineOf(setup, of(plan)), p99S)),
      { first },
    );
  const own = runOurs(setup);
  const same = still(planOf(own), Number.POSITIVE_INFINITY);
  if (same === undefined) throw new Error('a run without a limit has given up');
  return {
    'static, TP only': tpOnly,
    static: best,
    reload: run(setup, reload(setup.table, 3, 0.1, setup.demand)),
    Llumnix: moving(llumnix),
    Dynamo: moving((plan) => dynamo(setup.table, plan)),
    ours: own,
    'ours, kinds ignored': same,
    'ours, foreseeing': runOurs(setup, {
      forecaster: foresight(setup, 0),
      foresee: (...of) => foreseen(setup, ...of),
      switchS: 0,
      confirm: 1,
      margin: 0,
    }),
  };
}

/** The first deployment of a run. */
const planOf = ({ slots }: TimelineResult): DeploymentPlan => slots[0]?.plan ?? [];
const replicasOf = (plan: DeploymentPlan): number => plan.reduce((sum, { replicas }) => sum + replicas, 0);
