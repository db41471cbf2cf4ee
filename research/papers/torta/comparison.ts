import type { HardwareCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { table } from '../../../scheduler/validate/text-table.ts';
import { type Row, row } from '../rows.ts';
import { BASELINES, type Measure, OURS, ours, PAPER_BASELINES, type Run, type Runs, runOne } from './experiment.ts';
import { change, type Interval, interval, intervalText } from './statistics.ts';

export interface Compared {
  topology: string;
  runs: Runs;
}

/** Runs every policy on one topology, one run per seed. */
export async function compare(
  catalogue: HardwareCatalogue,
  topology: string,
  seeds: readonly number[],
  slots: number,
  names: readonly string[] = [...Object.keys(BASELINES), OURS],
): Promise<Compared> {
  const runs = new Map<string, Run[]>();
  for (const name of names) {
    const make = name === OURS ? ours : BASELINES[name];
    if (make === undefined) throw new Error(`no policy is called ${name}`);
    const own: Run[] = [];
    for (const seed of seeds) own.push(await runOne(catalogue, topology, seed, make, { slots }));
    runs.set(name, own);
  }
  return { topology, runs };
}

const MEASURES: readonly { title: string; of: Measure; digits: number }[] = [
  { title: 'response s', of: ({ responseS }) => responseS.mean, digits: 2 },
  { title: 'P99 s', of: ({ responseS }) => responseS.p99, digits: 1 },
  { title: 'wait', of: ({ waitS }) => waitS, digits: 2 },
  { title: 'compute', of: ({ computeS }) => computeS, digits: 2 },
  { title: 'load', of: ({ switchS }) => switchS, digits: 2 },
  { title: 'network', of: ({ networkS }) => networkS, digits: 3 },
  { title: 'cost USD', of: ({ costUsd }) => costUsd, digits: 2 },
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
 * Ours relative to the best of the paper's baselines, seed by seed; the best is the single policy with the best mean.
 */
function againstBest({ runs }: Compared, of: Measure, more: boolean): { best: string; change: Interval } {
  const mean = (name: string) => interval((runs.get(name) ?? []).map(of)).mean;
  const best = PAPER_BASELINES.reduce<string>(
    (found, name) => ((more ? mean(name) > mean(found) : mean(name) < mean(found)) ? name : found),
    PAPER_BASELINES[0],
  );
  return { best, change: change((runs.get(OURS) ?? []).map(of), (runs.get(best) ?? []).map(of)) };
}

const percent = (share: number) => 100 * share;

/** Figures 8, 9 and 10, with the paper's claims relative to its baselines. */
export function comparisonRows(compared: Compared): Row[] {
  const { topology, runs } = compared;
  const response = againstBest(compared, ({ responseS }) => responseS.mean, false);
  const cost = againstBest(compared, ({ costUsd }) => costUsd, false);
  const balance = againstBest(compared, (one) => one.balance, true);
  const done = ({ completed, arrived }: Run) => completed / Math.max(1, arrived);
  const values = (name: string, of: Measure) => (runs.get(name) ?? []).map(of);
  const greedy = change(
    values(OURS, ({ responseS }) => responseS.mean),
    values('latency-greedy', ({ responseS }) => responseS.mean),
  );
  const p99 = againstBest(compared, ({ responseS }) => responseS.p99, false);
  const worst = Math.min(...(runs.get(OURS) ?? []).map(done));
  const atMost = (share: number) => ({ band: [-100, share] as const });
  const said = (name: string, half: number) => `${topology}: ${name} (± ${percent(half).toFixed(1)})`;
  return [
    row(said(`response against ${response.best}`, response.change.half), '%', percent(response.change.mean), {
      paper: -15,
      ...atMost(-15),
    }),
    row(said(`cost against ${cost.best}`, cost.change.half), '%', percent(cost.change.mean), {
      paper: -20,
      ...atMost(-20),
    }),
    row(said(`balance against ${balance.best}`, balance.change.half), '%', percent(balance.change.mean), {
      paper: 5,
      band: [5, 100],
      miss: {
        band: [-12, 5],
        reason: 'it is of regions, and most servers sleep: the few busy ones of a region make its use uneven by chance',
      },
    }),
    row(said('response against latency-greedy', greedy.half), '%', percent(greedy.mean), atMost(1)),
    row(said(`P99 against ${p99.best}`, p99.change.half), '%', percent(p99.change.mean), atMost(0)),
    row(`${topology}: completed, worst seed`, '%', percent(worst), { band: [99.9, 100] }),
  ];
}
