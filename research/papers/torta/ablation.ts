import type { HardwareCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { researchData } from '../../data-path.ts';
import { latencyGreedy } from '../../regions/baselines/latency-greedy.ts';
import { loadingGreedy } from '../../regions/baselines/loading-greedy.ts';
import { exactPlanner, proportionalPlanner } from '../../regions/macro/exact-transport.ts';
import { oracle, smoothed } from '../../regions/macro/forecast.ts';
import { paperPlanner } from '../../regions/macro/paper-transport.ts';
import { policyPlanner } from '../../regions/macro/ppo/planner.ts';
import { smoothingPlanner } from '../../regions/macro/smoothing-planner.ts';
import { type TortaOptions, torta } from '../../regions/micro/torta.ts';
import type { Row } from '../rows.ts';
import { claim } from './claims.ts';
import { comparisonTable } from './comparison.ts';
import { type MakePolicy, OURS, ours, type Run, runOne } from './experiment.ts';
import { change } from './statistics.ts';

const variant =
  (name: string, options: Partial<TortaOptions>): MakePolicy =>
  (world) =>
    torta({ macro: smoothingPlanner(), forecast: smoothed(world), ...options, name });

/** Ours with one part removed or changed, and the two greedy policies that show the value of the parts together. */
const ABLATIONS: Readonly<Record<string, MakePolicy>> = {
  [OURS]: ours,
  'perfect forecast': (_world, source) =>
    torta({ name: 'perfect forecast', macro: smoothingPlanner(), forecast: oracle(source) }),
  'no smoothness (exact OT)': (world) =>
    torta({ name: 'no smoothness', macro: exactPlanner(), forecast: smoothed(world) }),
  "the paper's OT (2)": (world) => torta({ name: 'paper OT', macro: paperPlanner(), forecast: smoothed(world) }),
  'no OT (shares by capacity)': (world) =>
    torta({ name: 'no OT', macro: proportionalPlanner(), forecast: smoothed(world) }),
  'PPO instead of the QP': (world) =>
    torta({
      name: 'PPO',
      macro: policyPlanner(researchData(`regions/policy-${world.topology.id}.json`), world.topology),
      forecast: smoothed(world),
    }),
  'no activation': variant('no activation', { activation: false }),
  'no scores (7)-(10)': variant('no scores', { score: false }),
  'no local search (score alone)': variant('no local search', { localSearch: false }),
  'no migration': variant('no migration', { migration: false }),
  'latency-greedy': latencyGreedy,
  'loading-greedy': loadingGreedy,
};

export async function ablate(
  catalogue: HardwareCatalogue,
  topology: string,
  seeds: readonly number[],
  slots: number,
): Promise<Map<string, Run[]>> {
  const runs = new Map<string, Run[]>();
  for (const [name, make] of Object.entries(ABLATIONS)) {
    const own: Run[] = [];
    for (const seed of seeds) own.push(await runOne(catalogue, topology, seed, make, { slots }));
    runs.set(name, own);
  }
  return runs;
}

export const ablationTable = (runs: ReadonlyMap<string, readonly Run[]>): string => comparisonTable({ runs });

/**
 * Shows whether learning is worthwhile: the same two layers with PPO and with the QP. If no policy was trained, both
 * are the QP.
 */
export function learningRows(topology: string, runs: ReadonlyMap<string, readonly Run[]>): Row[] {
  const of = (name: string, measure: (run: Run) => number) => (runs.get(name) ?? []).map(measure);
  const measures: [string, (run: Run) => number][] = [
    ['response', ({ responseS }) => responseS.mean],
    ['cost', ({ costUsd }) => costUsd],
  ];
  return measures.map(([name, measure]) => {
    const { mean, half } = change(of('PPO instead of the QP', measure), of(OURS, measure));
    return claim(
      `Beyond the paper: ${name} with PPO against the QP`,
      `${topology}, ± ${(100 * half).toFixed(1)}`,
      '%',
      100 * mean,
      { band: [-20, 20] },
    );
  });
}
