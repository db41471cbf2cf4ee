import { latencyGreedy } from '../../regions/baselines/latency-greedy.ts';
import { loadingGreedy } from '../../regions/baselines/loading-greedy.ts';
import { exactPlanner, proportionalPlanner } from '../../regions/macro/exact-transport.ts';
import { oracle, smoothed } from '../../regions/macro/forecast.ts';
import { paperPlanner } from '../../regions/macro/paper-transport.ts';
import { smoothingPlanner } from '../../regions/macro/smoothing-planner.ts';
import { type TortaOptions, torta } from '../../regions/micro/torta.ts';
import type { Band, Row } from '../rows.ts';
import { claim } from './claims.ts';
import { comparisonTable } from './comparison.ts';
import { type MakePolicy, OURS, ours, type Run, type Simulations } from './experiment.ts';
import { change, interval } from './statistics.ts';

const variant =
  (name: string, options: Partial<TortaOptions>): MakePolicy =>
  (world) =>
    torta({ macro: smoothingPlanner(), forecast: smoothed(world), ...options, name });

const PAPER_OT = "the paper's OT (2)";

/** Ours with one part removed or changed, and the two greedy policies that show the value of the parts together. */
const ABLATIONS: Readonly<Record<string, MakePolicy>> = {
  [OURS]: ours,
  'perfect forecast': (_world, source) =>
    torta({ name: 'perfect forecast', macro: smoothingPlanner(), forecast: oracle(source) }),
  'no smoothness (exact OT)': (world) =>
    torta({ name: 'no smoothness', macro: exactPlanner(), forecast: smoothed(world) }),
  [PAPER_OT]: (world) => torta({ name: 'paper OT', macro: paperPlanner(), forecast: smoothed(world) }),
  'no OT (shares by capacity)': (world) =>
    torta({ name: 'no OT', macro: proportionalPlanner(), forecast: smoothed(world) }),
  'no activation': variant('no activation', { activation: false }),
  'no scores (7)-(10)': variant('no scores', { score: false }),
  'no local search (score alone)': variant('no local search', { localSearch: false }),
  'no migration': variant('no migration', { migration: false }),
  'latency-greedy': latencyGreedy,
  'loading-greedy': loadingGreedy,
};

export async function ablate(
  simulations: Simulations,
  topology: string,
  seeds: readonly number[],
  slots: number,
): Promise<Map<string, Run[]>> {
  const runs = new Map<string, Run[]>();
  for (const [name, make] of Object.entries(ABLATIONS)) {
    const own: Run[] = [];
    for (const seed of seeds) own.push(await simulations.run(name, topology, seed, make, { slots }));
    runs.set(name, own);
  }
  return runs;
}

export const ablationTable = (runs: ReadonlyMap<string, readonly Run[]>): string => comparisonTable({ runs });

/** What the scores (7) to (10) bring: ours with them against ours without, and with only them. */
export function scoreRows(topology: string, runs: ReadonlyMap<string, readonly Run[]>): Row[] {
  const rows: [string, string, Band][] = [
    ['with the scores (7)-(10) against without', 'no scores (7)-(10)', [-5, 5]],
    ['with the local search against only the scores', 'no local search (score alone)', [-100, -10]],
  ];
  return rows.map(([name, other, band]) => {
    const means = (of: string) => (runs.get(of) ?? []).map(({ responseS }) => responseS.mean);
    const { mean, half } = change(means(OURS), means(other));
    const detail = `${topology}, ± ${(100 * half).toFixed(1)}`;
    return claim(`Beyond the paper: response ${name}`, detail, '%', 100 * mean, { band });
  });
}

/** Theorem 1: the shares of (2) minimize response and power. Only the macro planner differs in these runs. */
export function transportRow(topology: string, runs: ReadonlyMap<string, readonly Run[]>): Row {
  const others = [OURS, 'no smoothness (exact OT)', 'no OT (shares by capacity)'];
  const mean = (name: string, of: (run: Run) => number) => interval((runs.get(name) ?? []).map(of)).mean;
  const [responseS, costUsd] = [(run: Run) => run.responseS.mean, (run: Run) => run.costUsd];
  const better = others.filter(
    (name) => mean(name, responseS) < mean(PAPER_OT, responseS) && mean(name, costUsd) < mean(PAPER_OT, costUsd),
  );
  const detail = `${topology}: ${mean(PAPER_OT, responseS).toFixed(2)} s, ${mean(PAPER_OT, costUsd).toFixed(2)} USD; less of both: ${better.join(', ') || 'none'}`;
  const name = 'Theorem 1: no other shares have a shorter response and a lower cost than (2)';
  return claim(name, detail, 'yes = 1', better.length === 0 ? 1 : 0, { paper: 1, band: [1, 1] });
}
