import type { HardwareCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { activated } from '../../regions/baselines/activated.ts';
import { gatewayPolicy } from '../../regions/baselines/gateway-policies.ts';
import { latencyGreedy } from '../../regions/baselines/latency-greedy.ts';
import { roundRobin } from '../../regions/baselines/round-robin.ts';
import { sdib } from '../../regions/baselines/sdib.ts';
import { skyLb } from '../../regions/baselines/skylb.ts';
import { smoothed } from '../../regions/macro/forecast.ts';
import { smoothingPlanner } from '../../regions/macro/smoothing-planner.ts';
import { torta } from '../../regions/micro/torta.ts';
import type { RegionPolicy } from '../../regions/simulator/policy.ts';
import type { RunResult } from '../../regions/simulator/recorder.ts';
import { type Outage, simulateRegions } from '../../regions/simulator/simulate.ts';
import { DEFAULT_LOAD, PoissonTasks, SLOT_S, type Surge, type TaskSource } from '../../regions/simulator/workload.ts';
import { buildWorld, type World } from '../../regions/world/world.ts';
import { KeptRuns } from './kept-runs.ts';

/** Makes a policy for one run; runs share no state. */
export type MakePolicy = (world: World, source: TaskSource, seed: number) => RegionPolicy;

/** The paper's baselines, a baseline that considers only time, and the policies of the gateway's router. */
export const BASELINES: Readonly<Record<string, MakePolicy>> = {
  'round-robin': roundRobin,
  skylb: skyLb,
  sdib,
  'latency-greedy': latencyGreedy,
  'gateway least-load': (_world, _source, seed) => gatewayPolicy('least-load', seed),
  'gateway prefix-affinity': (_world, _source, seed) => gatewayPolicy('prefix-affinity', seed),
  'gateway score': (_world, _source, seed) => gatewayPolicy('score', seed),
  'gateway weighted': (_world, _source, seed) => gatewayPolicy('weighted', seed),
};
/** The baselines of the paper. */
export const PAPER_BASELINES = ['round-robin', 'skylb', 'sdib'] as const;

/** Name of a baseline with servers that sleep, wake and load models as ours do. */
export const activation = (name: string) => `${name}, activation`;

export const OURS = 'ours';
/** Ours without activation: all servers stay awake with their models, as those of the plain baselines. */
export const AWAKE = 'ours, all awake';
export const ours: MakePolicy = (world) => torta({ name: OURS, macro: smoothingPlanner(), forecast: smoothed(world) });

/** All policies by name: baselines with and without activation, and ours with and without. */
export const POLICIES: Readonly<Record<string, MakePolicy>> = {
  ...BASELINES,
  ...Object.fromEntries(
    [...PAPER_BASELINES, 'latency-greedy', 'gateway least-load'].map((name): [string, MakePolicy] => [
      activation(name),
      // Round robin sends as many tasks to slow GPUs as to fast ones. If a GPU serves only the tasks that it is made
      // for, its response is a third shorter; that of the other baselines would be longer.
      (world, source, seed) =>
        activated((BASELINES[name] ?? roundRobin)(world, source, seed), { madeOnly: name === 'round-robin' }),
    ]),
  ),
  [AWAKE]: (world) => torta({ name: AWAKE, macro: smoothingPlanner(), forecast: smoothed(world), activation: false }),
  [OURS]: ours,
};

export interface RunOptions {
  slots: number;
  load?: number;
  surges?: readonly Surge[];
  outages?: readonly Outage[];
}

export type Run = Awaited<ReturnType<typeof simulateRegions>> & { topology: string; seed: number };

/** Runs policies, or returns the runs that are kept. */
export class Simulations {
  readonly catalogue: HardwareCatalogue;
  readonly kept: KeptRuns;

  constructor(catalogue: HardwareCatalogue, kept = new KeptRuns()) {
    this.catalogue = catalogue;
    this.kept = kept;
  }

  /**
   * Runs one policy through six hours of one topology, or fewer slots. World and tasks depend only on the seed, so all
   * policies get the same. `name`: of the policy; two policies with one name must not differ.
   */
  run(name: string, topology: string, seed: number, make: MakePolicy, options: RunOptions): Promise<Run> {
    return this.kept.get({ name, topology, seed, ...options }, () => this.#run(topology, seed, make, options));
  }

  async #run(topology: string, seed: number, make: MakePolicy, options: RunOptions): Promise<Run> {
    const { slots, load = DEFAULT_LOAD, surges = [], outages = [] } = options;
    const world = buildWorld(topology, seed, this.catalogue);
    const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed, load, surges });
    const policy = make(world, source, seed);
    const result = await simulateRegions({ world, source, policy, slots, slotS: SLOT_S, outages });
    return { ...result, topology, seed };
  }
}

export type Measure = (run: RunResult) => number;

/** Runs of one topology by name of the policy, one run per seed in the same order. */
export type Runs = ReadonlyMap<string, readonly Run[]>;
