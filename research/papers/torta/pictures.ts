import { barsSvg } from '../../../scheduler/cli/bar-chart.ts';
import { chartsSvg } from '../../../shared/text/svg-chart.ts';
import { QUANTILES } from '../../regions/simulator/recorder.ts';
import type { Compared } from './comparison.ts';
import { SETTINGS } from './comparison.ts';
import { activation, type Measure, OURS, PAPER_BASELINES, type Run } from './experiment.ts';
import type { AccuracyPoint } from './scenarios.ts';
import { interval } from './statistics.ts';

/** Policies with the same powers: all activate servers. */
const SHOWN = [...SETTINGS.sleep.baselines, activation('latency-greedy'), OURS];

/** Figures 8, 9 and 10 next to each other, for one topology. */
export function comparisonPicture({ topology, runs }: Compared): [name: string, svg: string] {
  const panel = (title: string, unit: string, more: boolean, of: Measure) => ({
    title,
    unit,
    more,
    values: SHOWN.map((name) => ({ name, value: interval((runs.get(name) ?? []).map(of)).mean })),
  });
  const svg = barsSvg([
    panel(`Response, ${topology}`, 's', false, ({ responseS }) => responseS.mean),
    panel('99th percentile', 's', false, ({ responseS }) => responseS.p99),
    panel('Electricity', 'USD', false, ({ costUsd }) => costUsd),
    panel('Balance', '1/(1+CV)', true, ({ balance }) => balance),
  ]);
  return [`regions-${topology}`, svg];
}

/** Figure 8: the share of tasks with a response of at most x, the mean of the quantiles of all seeds. */
export function responsePicture({ topology, runs }: Compared): [name: string, svg: string] {
  const series = [...PAPER_BASELINES, ...SHOWN].map((name) => ({
    name,
    points: QUANTILES.map((q, at): [number, number] => [
      interval((runs.get(name) ?? []).map(({ quantilesS }) => quantilesS[at] ?? 0)).mean,
      q,
    ]),
  }));
  return [
    `regions-response-${topology}`,
    chartsSvg([{ title: `Response, ${topology}`, x: 's', y: 'share of tasks', series }]),
  ];
}

/** Figure 10: the share of slots with a balance (11) of at most x, over all seeds. */
export function balancePicture({ topology, runs }: Compared): [name: string, svg: string] {
  const series = [...PAPER_BASELINES, ...SHOWN].flatMap((name) => {
    const values = (runs.get(name) ?? []).flatMap(({ balances }) => balances).sort((a, b) => a - b);
    const points = values.map((value, i): [number, number] => [value, (i + 1) / values.length]);
    return points.length === 0 ? [] : [{ name, points }];
  });
  const svg = chartsSvg([
    { title: `Balance of active servers, ${topology}`, x: '1/(1+CV)', y: 'share of slots', series },
  ]);
  return [`regions-balance-${topology}`, svg];
}

/** Mean response by slot, over all seeds. */
export function coursePicture(title: string, runs: ReadonlyMap<string, readonly Run[]>): string {
  const series = [...runs].map(([name, own]) => ({
    name,
    points: (own[0]?.course ?? []).map((_, slot): [number, number] => {
      const sums = own.map(({ course }) => course[slot]);
      const completed = sums.reduce((sum, one) => sum + (one?.completed ?? 0), 0);
      return [slot, sums.reduce((sum, one) => sum + (one?.responseS ?? 0), 0) / Math.max(1, completed)];
    }),
  }));
  return chartsSvg([{ title, x: 'slot of 45 s', y: 'seconds', series }]);
}

/** Figure 12. */
export function accuracyPicture(points: readonly AccuracyPoint[], baselineS: number): string {
  const line = (of: (point: AccuracyPoint) => number): [number, number][] =>
    points.map((point): [number, number] => [point.accuracy, of(point)]).sort((a, b) => a[0] - b[0]);
  return chartsSvg([
    {
      title: 'Response by accuracy of the forecast',
      x: 'accuracy (12)',
      y: 'seconds',
      series: [
        { name: 'ours', points: line(({ responseS }) => responseS) },
        { name: 'best baseline with activation', points: line(() => baselineS) },
      ],
    },
    {
      title: 'Electricity by accuracy of the forecast',
      x: 'accuracy (12)',
      y: 'USD',
      series: [{ name: 'ours', points: line(({ costUsd }) => costUsd) }],
    },
  ]);
}
