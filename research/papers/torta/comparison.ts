import { table } from '../../../scheduler/validate/text-table.ts';
import { objectiveS } from '../../regions/macro/objective.ts';
import {
  AWAKE,
  activation,
  type Measure,
  OURS,
  PAPER_BASELINES,
  POLICIES,
  type Run,
  type Runs,
  type Simulations,
} from './experiment.ts';
import { change, type Interval, interval, intervalText } from './statistics.ts';

export interface Compared {
  topology: string;
  runs: Runs;
}

/** Runs policies on one topology, one run per seed. */
export async function compare(
  simulations: Simulations,
  topology: string,
  seeds: readonly number[],
  slots: number,
  names: readonly string[] = Object.keys(POLICIES),
): Promise<Compared> {
  const runs = new Map<string, Run[]>();
  for (const name of names) {
    const make = POLICIES[name];
    if (make === undefined) throw new Error(`no policy is called ${name}`);
    const own: Run[] = [];
    for (const seed of seeds) own.push(await simulations.run(name, topology, seed, make, { slots }));
    runs.set(name, own);
  }
  return { topology, runs };
}

/** A comparison in which some policies have some powers. */
export interface Setting {
  name: string;
  ours: string;
  baselines: readonly string[];
}

/** Policies with the same powers, and the paper's comparison, in which only its own scheduler activates servers. */
export const SETTINGS = {
  awake: { name: 'all servers awake', ours: AWAKE, baselines: PAPER_BASELINES },
  sleep: { name: 'all policies activate', ours: OURS, baselines: PAPER_BASELINES.map(activation) },
  paper: { name: 'only ours activates', ours: OURS, baselines: PAPER_BASELINES },
} as const satisfies Record<string, Setting>;

const MEASURES: readonly { title: string; of: Measure; digits: number }[] = [
  { title: 'response s', of: ({ responseS }) => responseS.mean, digits: 2 },
  { title: 'P99 s', of: ({ responseS }) => responseS.p99, digits: 1 },
  { title: 'wait', of: ({ waitS }) => waitS, digits: 2 },
  { title: 'compute', of: ({ computeS }) => computeS, digits: 2 },
  { title: 'load', of: ({ switchS }) => switchS, digits: 2 },
  { title: 'migrate', of: ({ migrateS }) => migrateS, digits: 3 },
  { title: 'network', of: ({ networkS }) => networkS, digits: 3 },
  { title: 'cost USD', of: ({ costUsd }) => costUsd, digits: 2 },
  { title: 'switching', of: ({ overheadUsd }) => overheadUsd, digits: 2 },
  { title: 'asleep', of: ({ costByPhaseUsd }) => costByPhaseUsd[0] ?? 0, digits: 2 },
  { title: 'idle', of: ({ costByPhaseUsd }) => costByPhaseUsd[2] ?? 0, digits: 2 },
  { title: 'change A', of: ({ shareChange }) => shareChange, digits: 2 },
  { title: '(1) s', of: objectiveS, digits: 2 },
  { title: 'balance', of: ({ balance }) => balance, digits: 3 },
  { title: 'completed %', of: ({ completed, arrived }) => (100 * completed) / Math.max(1, arrived), digits: 2 },
  { title: 'awake %', of: ({ awake }) => 100 * awake, digits: 0 },
];

export function comparisonTable({ runs }: Pick<Compared, 'runs'>): string {
  return table(
    ['policy', ...MEASURES.map(({ title }) => title)],
    [...runs].map(([name, own]) => [
      name,
      ...MEASURES.map(({ of, digits }) => intervalText(interval(own.map(of)), digits)),
    ]),
  );
}

/**
 * Ours relative to the best baseline of a setting, seed by seed; the best is the single policy with the best mean.
 * `more`: a larger value is better.
 */
export function againstBest(
  { runs }: Pick<Compared, 'runs'>,
  setting: Setting,
  of: Measure,
  more = false,
): { best: string; change: Interval } {
  const values = (name: string) => (runs.get(name) ?? []).map(of);
  const mean = (name: string) => interval(values(name)).mean;
  const [first = ''] = setting.baselines;
  const best = setting.baselines.reduce<string>(
    (found, name) => ((more ? mean(name) > mean(found) : mean(name) < mean(found)) ? name : found),
    first,
  );
  return { best, change: change(values(setting.ours), values(best)) };
}
