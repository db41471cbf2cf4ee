import { chooseForecaster } from '../../forecast/choose.ts';
import { dynamo } from '../../orchestration/orchestrators/dynamo.ts';
import { type OursOptions, ours } from '../../orchestration/orchestrators/ours.ts';
import { reload } from '../../orchestration/orchestrators/reload.ts';
import { llumnix, unchanged } from '../../orchestration/orchestrators/unchanged.ts';
import type { Placed } from '../../orchestration/placement.ts';
import { switchCost } from '../../orchestration/switch-cost.ts';
import { type Orchestrator, runTimeline, type TimelineResult } from '../../orchestration/timeline.ts';
import { type DeploymentPlan, keyOf } from '../../orchestration/types.ts';
import { DEFAULT_LIMITS } from '../../serving/limits.ts';
import { planLoad, type Setup, SLOT_S, uniformsOf } from './setups.ts';

/** Bytes/s of one link between replicas: an NDR InfiniBand port carries 50 GB/s, half of it for keys and values. */
const KV_BYTES_PER_S = 25e9;
/** Uniform deployments that a baseline tries: the least loaded ones, by simulation of the very span that it is judged on. */
const TRIED = 4;

export const POLICIES = [
  'static, TP only',
  'static',
  'reload',
  'Llumnix',
  'Dynamo',
  'ours',
  /** What ours begins with, and requests go to the least loaded replica whatever their kind: what gateways do without kinds. */
  'ours, kinds ignored',
] as const;
export type PolicyName = (typeof POLICIES)[number];

export function run(setup: Setup, orchestrator: Orchestrator, judged = setup.kinds): TimelineResult {
  return runTimeline({
    table: setup.table,
    limits: DEFAULT_LIMITS,
    requests: setup.requests,
    judged,
    slotS: SLOT_S,
    before: setup.before,
    orchestrator,
    kvBytesPerS: KV_BYTES_PER_S,
  });
}

/** Each baseline at its best uniform deployment for this span, which no operator could know: by P99. */
export function bestOf(setup: Setup, of: (plan: DeploymentPlan) => TimelineResult, tpOnly = false): TimelineResult {
  const { table } = setup;
  const all = uniformsOf(table, table.site.gpus).filter(([group]) => !tpOnly || group?.shape.pp === 1);
  const tried = all
    .map((plan) => ({ plan, load: planLoad(table, plan, setup.demand) }))
    .sort((a, b) => a.load - b.load)
    .slice(0, TRIED);
  const results = tried.map(({ plan }) => of(plan));
  return results.reduce((best, one) => (one.latency.p99 < best.latency.p99 ? one : best));
}

export interface OursSettings
  extends Partial<
    Pick<OursOptions, 'forecaster' | 'horizon' | 'margin' | 'fixedPlan' | 'untyped' | 'plans' | 'confirm'>
  > {
  /** Seconds of every switch; from the plan of the transfer without it. */
  switchS?: number;
  judged?: Int32Array;
}

export function runOurs(setup: Setup, { switchS, judged, ...settings }: OursSettings = {}): TimelineResult {
  const { table } = setup;
  const transferS = (running: readonly Placed[], to: DeploymentPlan) =>
    switchCost(running, to, table.site, 'peer transfer').seconds;
  const orchestrator = ours({
    table,
    limits: DEFAULT_LIMITS,
    forecaster: chooseForecaster(setup.before, setup.seed).fitted,
    horizon: 3,
    margin: 0.3,
    // With two, three of 18 runs of Azure switch in a burst, and P99 is up to 1.3 × longer; with one, seven do, up to 1.8 ×.
    confirm: 3,
    initial: setup.demand,
    ...settings,
    switchS: switchS === undefined ? transferS : () => switchS,
  });
  return run(setup, orchestrator, judged);
}

/** All policies on one setup, in their order. */
export function runPolicies(setup: Setup): Record<PolicyName, TimelineResult> {
  const results: Partial<Record<PolicyName, TimelineResult>> = {};
  const plans = new Map<string, TimelineResult>();
  // The same deployments come up as static, by tensor parallelism alone, and as what ours begins with.
  const still = (plan: DeploymentPlan): TimelineResult => {
    const known = plans.get(keyOf(plan)) ?? run(setup, unchanged('static', plan, { kind: 'least-loaded' }));
    plans.set(keyOf(plan), known);
    return known;
  };
  const one = (name: PolicyName): TimelineResult => {
    const result = results[name] ?? runPolicy(setup, name, still, one);
    results[name] = result;
    return result;
  };
  const all = POLICIES.map((name) => [name, one(name)] as const);
  return Object.fromEntries(all) as Record<PolicyName, TimelineResult>;
}

function runPolicy(
  setup: Setup,
  name: PolicyName,
  still: (plan: DeploymentPlan) => TimelineResult,
  result: (name: PolicyName) => TimelineResult,
): TimelineResult {
  switch (name) {
    case 'static, TP only':
      return bestOf(setup, still, true);
    case 'static':
      return bestOf(setup, still);
    case 'reload':
      return run(setup, reload(setup.table, 3, 0.1, setup.demand));
    case 'Llumnix':
      return bestOf(setup, (plan) => run(setup, llumnix(plan)));
    case 'Dynamo':
      return bestOf(setup, (plan) => run(setup, dynamo(setup.table, plan)));
    case 'ours':
      return runOurs(setup);
    case 'ours, kinds ignored':
      return still(result('ours').slots[0]?.plan ?? []);
  }
}
