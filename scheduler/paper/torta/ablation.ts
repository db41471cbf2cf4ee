import type { Catalogue } from '../../catalogue/catalogue.ts';
import { latencyGreedy } from '../../regions/baselines/latency-greedy.ts';
import { loadingGreedy } from '../../regions/baselines/loading-greedy.ts';
import { exactPlanner, proportionalPlanner } from '../../regions/macro/exact-transport.ts';
import { oracle, smoothed } from '../../regions/macro/forecast.ts';
import { paperPlanner } from '../../regions/macro/paper-transport.ts';
import { smoothingPlanner } from '../../regions/macro/smoothing-planner.ts';
import { type TortaOptions, torta } from '../../regions/micro/torta.ts';
import { comparisonTable } from './comparison.ts';
import { type MakePolicy, OURS, ours, type Run, runOne } from './experiment.ts';

const variant =
  (name: string, options: Partial<TortaOptions>): MakePolicy =>
  (world) =>
    torta({ macro: smoothingPlanner(), forecast: smoothed(world), ...options, name });

/** Ours with one part taken away or changed, and the two greedy policies that say what the parts are worth together. */
export const ABLATIONS: Readonly<Record<string, MakePolicy>> = {
  [OURS]: ours,
  'perfect forecast': (_world, source) =>
    torta({ name: 'perfect forecast', macro: smoothingPlanner(), forecast: oracle(source) }),
  'no smoothness (exact OT)': (world) =>
    torta({ name: 'no smoothness', macro: exactPlanner(), forecast: smoothed(world) }),
  "the paper's OT (2)": (world) => torta({ name: 'paper OT', macro: paperPlanner(), forecast: smoothed(world) }),
  'no OT (shares by capacity)': (world) =>
    torta({ name: 'no OT', macro: proportionalPlanner(), forecast: smoothed(world) }),
  'no activation': variant('no activation', { activation: false }),
  'no local search (score alone)': variant('no local search', { localSearch: false }),
  'latency-greedy': latencyGreedy,
  'loading-greedy': loadingGreedy,
};

export async function ablate(
  catalogue: Catalogue,
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
