import type { HardwareCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
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
  'gateway weighted': (_world, _source, seed) => gatewayPolicy('weighted', seed),
};
/** The baselines of the paper. */
export const PAPER_BASELINES = ['round-robin', 'skylb', 'sdib'] as const;

export const OURS = 'ours';
export const ours: MakePolicy = (world) => torta({ name: OURS, macro: smoothingPlanner(), forecast: smoothed(world) });

export interface RunOptions {
  slots: number;
  load?: number;
  surges?: readonly Surge[];
  outages?: readonly Outage[];
}

export type Run = Awaited<ReturnType<typeof simulateRegions>> & { topology: string; seed: number };

/**
 * Runs one policy through six hours of one topology, or fewer slots. World and tasks depend only on the seed, so all
 * policies get the same.
 */
export async function runOne(
  catalogue: HardwareCatalogue,
  topology: string,
  seed: number,
  make: MakePolicy,
  options: RunOptions,
): Promise<Run> {
  const { slots, load = DEFAULT_LOAD, surges = [], outages = [] } = options;
  const world = buildWorld(topology, seed, catalogue);
  const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed, load, surges });
  const policy = make(world, source, seed);
  const result = await simulateRegions({ world, source, policy, slots, slotS: SLOT_S, outages });
  return { ...result, topology, seed };
}

export type Measure = (run: RunResult) => number;

/** Runs of one topology by name of the policy, one run per seed in the same order. */
export type Runs = ReadonlyMap<string, readonly Run[]>;
