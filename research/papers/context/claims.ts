import type { Policy } from '../../contexts/costs.ts';
import { type Result, type Run, simulateWorkers } from '../../contexts/simulate.ts';
import { type Row, row, statement } from '../rows.ts';
import { figure4 } from './all-runs.ts';
import {
  alone,
  BATCH_SIZES,
  DAILY_GPUS,
  evictedRun,
  leavingRun,
  opportunistic,
  PV6_GPUS,
  poolRun,
  pv5p,
  pv5s,
  SUBMITTED_EVERY_S,
} from './runs.ts';

/** Every figure is the median over these seeds; the paper ran each once. */
const SEEDS = [1, 2, 3, 4, 5, 6, 7] as const;
/** Allowed relative difference of a run's time from the paper's. */
const NEAR = 0.08;
/**
 * The same for pv3_100: by the published mean of its tasks, the run had fewer workers, or more contention, than 20
 * workers explain.
 */
const PV3_100 = 0.2;

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
const medianOf = (of: (seed: number) => number) => median(SEEDS.map(of));
const endS = (policy: Policy, batch: number) => medianOf((seed) => simulateWorkers(poolRun(policy, batch, seed)).endS);

/** Seconds from start to end of each run, by the paper's name. */
export function times(): Map<string, number> {
  const found = new Map<string, number>();
  found.set(
    'pv0',
    medianOf((seed) => simulateWorkers(alone(seed)).endS),
  );
  found.set('pv1', endS('naive', 100));
  for (const batch of BATCH_SIZES) found.set(`pv3_${batch}`, endS('partial', batch));
  for (const batch of BATCH_SIZES) found.set(`pv4_${batch}`, endS('pervasive', batch));
  found.set(
    'pv6',
    medianOf((seed) => simulateWorkers(opportunistic(PV6_GPUS, seed)).endS),
  );
  for (const gpus of DAILY_GPUS)
    found.set(
      `daily_${gpus}`,
      medianOf((seed) => simulateWorkers(opportunistic(gpus, seed)).endS),
    );
  return found;
}

const PAPER_S: [string, number, number][] = [
  ['pv0', 40_900, NEAR],
  ['pv1', 10_400, NEAR],
  ['pv3_1', 141_100, NEAR],
  ['pv3_100', 5_300, PV3_100],
  ['pv3_1000', 3_202, NEAR],
  ['pv4_1', 3_104, NEAR],
  ['pv4_100', 2_942, NEAR],
  ['pv6', 783, NEAR],
];

export function timeRows(found: ReadonlyMap<string, number>): Row[] {
  const of = (name: string) => found.get(name) ?? Number.NaN;
  const smallest = (prefix: string) =>
    BATCH_SIZES.reduce(
      (best, batch) => (of(`${prefix}_${batch}`) < of(`${prefix}_${best}`) ? batch : best),
      BATCH_SIZES[0] as number,
    );
  const spread = (prefix: string, batches: readonly number[]) => {
    const all = batches.map((batch) => of(`${prefix}_${batch}`));
    return 100 * (Math.max(...all) / Math.min(...all) - 1);
  };
  return [
    ...PAPER_S.map(([name, paper, share]) => row(`${name}: time`, 's', of(name), { paper, share })),
    row('pv4_1000: time', 's', of('pv4_1000'), { band: [0, 3_304] }),
    ...['pv3_3000', 'pv3_7500', 'pv4_3000', 'pv4_7500'].map((name) => row(`${name}: time`, 's', of(name))),
    row('pv6_2p: time, if it is the run of 64 GPUs', 's', of('daily_64'), { paper: 1_211, share: NEAR }),
    ...DAILY_GPUS.slice(0, -1).map((gpus) => row(`daily run of ${gpus} GPUs: time`, 's', of(`daily_${gpus}`))),
    row('pervasive against one GPU (pv0 to pv6): less time', '%', 100 * (1 - of('pv6') / of('pv0')), {
      band: [97.5, 98.7],
      paper: 98.1,
    }),
    row('partial: worst batch size against the best', '%', spread('pv3', BATCH_SIZES), { paper: 4_306, share: 0.15 }),
    row('pervasive: worst batch size to 1,000 against the best', '%', spread('pv4', [1, 100, 1_000]), {
      paper: 12.3,
      band: [0, 12.3],
    }),
    statement('partial is fastest at 1,000 a task', smallest('pv3') === 1_000),
    statement('pervasive is fastest at 100 a task', smallest('pv4') === 100),
    statement(
      'pv0 > pv1 > pv2 > pv4_100 > pv6',
      of('pv0') > of('pv1') && of('pv1') > of('pv3_100') && of('pv3_100') > of('pv4_100') && of('pv4_100') > of('pv6'),
    ),
  ];
}

/** pv6 as it is on a real site: GPUs are taken back, and a factory submits jobs within its limits. */
export function siteRows(): Row[] {
  const of = (run: (seed: number) => Run, what: 'endS' | 'lost') =>
    medianOf((seed) => simulateWorkers(run(seed))[what]);
  const leaving = (seed: number) => leavingRun(PV6_GPUS, seed);
  const slow = (seed: number) => opportunistic(PV6_GPUS, seed, undefined, SUBMITTED_EVERY_S.default);
  const paper = { paper: 783, reported: 'the paper reports neither evictions nor the rate of its submissions' };
  return [
    row('pv6, each worker evicted after 30 min on average and replaced in 60 s: time', 's', of(leaving, 'endS'), paper),
    row('the same: inferences lost', 'inferences', of(leaving, 'lost')),
    row("pv6, workers at the factory's default of 10 jobs a minute: time", 's', of(slow, 'endS'), paper),
  ];
}

/** Figure 4: mean workers of the runs. */
export function workerRows(): Row[] {
  const [seed] = SEEDS;
  return figure4(seed).map(({ name, workers }) => row(`${name}: mean workers`, 'workers', workers));
}

/** pv5: all workers are evicted, one per minute. */
export function evictionRows(): Row[] {
  const [partial, pervasive] = [SEEDS.map(pv5p), SEEDS.map((seed) => pv5s(seed))];
  const lostTwo = (how: 'run' | 'evictions') => median(SEEDS.map((seed) => pv5s(seed, how).done));
  const of = (results: readonly Result[], what: 'done' | 'lost') => median(results.map((one) => one[what]));
  const [p, s] = [of(partial, 'done'), of(pervasive, 'done')];
  return [
    row('pv5p: inferences done before the last eviction', 'inferences', p, { paper: 46_000, share: 0.15 }),
    row('pv5s: inferences done before the last eviction', 'inferences', s, { paper: 63_000, share: 0.15 }),
    row('pv5s, where two of the workers never computed', 'inferences', lostTwo('run')),
    row('pv5s, where two workers went in the first minute of evictions', 'inferences', lostTwo('evictions')),
    row('pv5s less pv5p', 'inferences', s - p, { paper: 16_900, band: [8_000, 20_000] }),
    row('pv5p: inferences lost', 'inferences', of(partial, 'lost'), { paper: 20_000, band: [19_000, 20_000] }),
    row('pv5s: inferences lost', 'inferences', of(pervasive, 'lost'), { paper: 2_000, band: [1_700, 2_000] }),
  ];
}

const ONE_DRAW = 'one draw of the tail of one run';

/** The paper's Table 2: execution times of tasks. */
export function taskRows(): Row[] {
  const paper: [string, Policy, number, number, number, number, number][] = [
    ['pv3_1', 'partial', 1, 15.1, 27.26, 5.55, 390],
    ['pv4_1', 'pervasive', 1, 0.32, 0.13, 0.0008, 15.25],
    ['pv3_100', 'partial', 100, 46.78, 32.88, 5.93, 195.9],
    ['pv4_100', 'pervasive', 100, 31.91, 9.3, 0.0008, 79.05],
  ];
  return paper.flatMap(([name, policy, batch, mean, sd, least, most]) => {
    const all = SEEDS.map((seed) => momentsOf(simulateWorkers(poolRun(policy, batch, seed)).tasksS));
    const at = (what: keyof Moments) => median(all.map((one) => one[what]));
    return [
      row(`${name}: mean of a task`, 's', at('mean'), { paper: mean, share: NEAR }),
      row(`${name}: standard deviation`, 's', at('sd'), { paper: sd, share: 0.35 }),
      row(`${name}: shortest`, 's', at('least'), { paper: least, reported: ONE_DRAW }),
      row(`${name}: longest`, 's', at('most'), { paper: most, reported: ONE_DRAW }),
    ];
  });
}

interface Moments {
  mean: number;
  sd: number;
  least: number;
  most: number;
}

function momentsOf(values: Float64Array): Moments {
  let [sum, squares, least, most] = [0, 0, Number.POSITIVE_INFINITY, 0];
  for (const value of values) {
    sum += value;
    squares += value * value;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  const mean = sum / values.length;
  return { mean, sd: Math.sqrt(Math.max(0, squares / values.length - mean * mean)), least, most };
}

/**
 * The paper's result with continuous batching and commits by line. The speedup of its application with a full window is
 * unknown: three values are shown. The paper's own runs decode one line at a time.
 */
const SPEEDUPS = [1, 4, 8] as const;
const OWN_RUN = 'beside our simulation of the paper, which is no figure of the paper';
const OURS = { window: 16, flushS: 1 };

export function oursRows(found: ReadonlyMap<string, number>): Row[] {
  const lost = (speedup: number) =>
    medianOf((seed) => simulateWorkers(evictedRun('pervasive', 100, seed, 'no', { ...OURS, speedup })).lost);
  return SPEEDUPS.flatMap((speedup) => {
    const engine = { ...OURS, speedup };
    const small = medianOf((seed) => simulateWorkers(poolRun('pervasive', 100, seed, engine)).endS);
    const large = medianOf((seed) => simulateWorkers(opportunistic(PV6_GPUS, seed, engine)).endS);
    const name = `commits by line, engine ${speedup} times as fast at a full window`;
    return [
      row(`${name}: pv4_100`, 's', small, { paper: found.get('pv4_100') ?? Number.NaN, reported: OWN_RUN }),
      row(`${name}: pv6`, 's', large, { paper: found.get('pv6') ?? Number.NaN, reported: OWN_RUN }),
      row(`${name}: lost in pv5`, 'inferences', lost(speedup), {
        band: [0, 20 * (OURS.window + 4 * speedup * OURS.flushS + 4 * speedup)],
      }),
    ];
  });
}
