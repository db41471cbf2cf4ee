import { researchData } from '../../data-path.ts';
import { smoothed } from '../../regions/macro/forecast.ts';
import { objectiveS } from '../../regions/macro/objective.ts';
import { policyPlanner } from '../../regions/macro/ppo/planner.ts';
import { torta } from '../../regions/micro/torta.ts';
import type { Band, Row } from '../rows.ts';
import { claim } from './claims.ts';
import { comparisonTable } from './comparison.ts';
import { type MakePolicy, type Measure, OURS, ours, type Run, type Simulations } from './experiment.ts';
import { change, type Interval } from './statistics.ts';

const LEARNED = 'PPO on the QP';

const learned: MakePolicy = (world) =>
  torta({ name: LEARNED, macro: policyPlanner(researchData('regions/policy.json')), forecast: smoothed(world) });

const MEASURES: readonly [name: string, of: Measure, band: Band][] = [
  ['objective (1)', objectiveS, [-20, 3]],
  ['response', ({ responseS }) => responseS.mean, [-20, 5]],
  ['cost', ({ costUsd }) => costUsd, [-20, 5]],
  ['balance', ({ balance }) => balance, [-10, 20]],
];

/** `lower`: a smaller value is better. The verdict is `level` unless the whole interval is on one side of 0. */
export function verdict({ mean, half }: Interval, lower: boolean): 'better' | 'level' | 'worse' {
  if (Math.abs(mean) <= half) return 'level';
  return mean < 0 === lower ? 'better' : 'worse';
}

/** Shows whether learning is worthwhile: the same two layers with and without the policy's factors on the QP. */
export async function learning(
  simulations: Simulations,
  topologies: readonly { id: string; seeds: readonly number[] }[],
  slots: number,
): Promise<{ rows: Row[]; text: string }> {
  const rows: Row[] = [];
  const tables: string[] = [];
  for (const { id, seeds } of topologies) {
    const runs = new Map<string, Run[]>([
      [OURS, []],
      [LEARNED, []],
    ]);
    for (const seed of seeds) {
      runs.get(OURS)?.push(await simulations.run(OURS, id, seed, ours, { slots }));
      runs.get(LEARNED)?.push(await simulations.run(LEARNED, id, seed, learned, { slots }));
    }
    for (const [name, of, band] of MEASURES) {
      const values = (policy: string) => (runs.get(policy) ?? []).map(of);
      const found = change(values(LEARNED), values(OURS));
      const detail = `${id}, ${seeds.length} seeds, ± ${(100 * found.half).toFixed(2)}: ${verdict(found, name !== 'balance')}`;
      rows.push(claim(`Beyond the paper: ${name} with PPO against the QP`, detail, '%', 100 * found.mean, { band }));
    }
    tables.push(`learning, ${id}\n\n${comparisonTable({ runs })}`);
  }
  return { rows, text: tables.join('\n\n') };
}
