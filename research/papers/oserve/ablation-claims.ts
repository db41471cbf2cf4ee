import type { FittedForecaster, History } from '../../../scheduler/forecast/types.ts';
import { table } from '../../../scheduler/validate/text-table.ts';
import { chartsSvg } from '../../../shared/text/svg-chart.ts';
import { planText } from '../../orchestration/deployment-plan.ts';
import { llumnix, unchanged } from '../../orchestration/orchestrators/unchanged.ts';
import type { TimelineResult } from '../../orchestration/timeline.ts';
import { row, statement } from '../rows.ts';
import { ablationFigure } from './ablation-figure.ts';
import { foresight } from './foresight.ts';
import { bestStatic, knowing, run, runOurs, staticOf } from './policies.ts';
import type { RunOptions, Section } from './section.ts';
import { asJudged, type Setup, SLOT_S, setupOf, uniformsOf } from './setups.ts';

export function ablationClaims({ quick }: RunOptions): Section {
  const setup = setupOf({ model: 'facebook/opt-30b', gpus: quick ? 8 : 16, trace: 'servegen', span: 4 });
  const { table: rates } = setup;
  // Forecasts are of the groups that a gateway judges at arrival.
  const told = asJudged(setup);
  const figure = ablationFigure({ quick });
  const ours = runOurs(setup);
  const runs: [string, TimelineResult][] = [
    ['uniform, best on the past', staticOf(setup)],
    ['uniform, best in hindsight', bestStatic(setup)],
    ['unequal replicas, kinds ignored', runOurs(setup, { fixedPlan: true, untyped: true })],
    ['and kinds assigned', runOurs(setup, { fixedPlan: true })],
    ['and switching', ours],
    ['switching between uniform deployments only', runOurs(setup, { plans: (gpus) => uniformsOf(rates, gpus) })],
    ['with the true next minutes', runOurs(setup, { forecaster: foresight(told, 0) })],
    ['without kinds in the forecast', runOurs(setup, { forecaster: untyped(told) })],
    ['kinds known', runOurs(setup, { judged: setup.kinds })],
  ];
  const p99 = (name: string) => runs.find(([one]) => one === name)?.[1].latency.p99 ?? Number.NaN;
  // Least loaded, our policy in today's gateways, on the deployment that was chosen.
  const plan = ours.slots[0]?.plan ?? [];
  const same = run(setup, unchanged('least-loaded', plan, { kind: 'least-loaded' }));
  const moved = run(setup, llumnix(plan));
  const errors = quick ? [0, 0.5] : [0, 0.1, 0.25, 0.5, 1];
  const sweep = errors.map((error) => ({
    error,
    ...runOurs(setup, { forecaster: foresight(told, error) }),
  }));
  return {
    title: 'What each part does (Figure 14), errors of the forecast, one kind only (Appendix K)',
    rows: [
      ...figure.rows,
      row(
        'P99 of the best existing policy on the same deployment over ours',
        '×',
        Math.min(same.latency.p99, moved.latency.p99) / ours.latency.p99,
      ),
      row('P99 with the true next minutes over ours', '×', p99('with the true next minutes') / p99('and switching')),
      row(
        'P99 at the largest forecast error over none',
        '×',
        (sweep.at(-1)?.latency.p99 ?? 0) / (sweep[0]?.latency.p99 ?? 1),
      ),
      row(
        'throughput at the largest forecast error over none',
        '×',
        (sweep.at(-1)?.requestsPerS ?? 0) / (sweep[0]?.requestsPerS ?? 1),
        {
          paper: 0.71,
          band: [0.71, 1.1],
        },
      ),
      ...homogeneous(),
    ],
    verdicts: [],
    text: `${figure.text}\n\n${table(
      ['variant', 'mean s', 'P95 s', 'P99 s', 'req/s', 'switches'],
      runs.map(([name, { latency, requestsPerS, switches }]) => [
        name,
        latency.mean.toFixed(2),
        latency.p95.toFixed(2),
        latency.p99.toFixed(2),
        requestsPerS.toFixed(1),
        switches,
      ]),
    )}\n\n${table(
      ['error of the forecast', 'P99 s', 'req/s', 'switches'],
      sweep.map(({ error, latency, requestsPerS, switches }) => [
        `${error * 100} %`,
        latency.p99.toFixed(2),
        requestsPerS.toFixed(1),
        switches,
      ]),
    )}\n\n${timelineTable(setup, ours)}`,
    pictures: [
      [
        'oserve-forecast-error',
        chartsSvg([
          {
            title: 'P99 by the error of the forecast',
            x: 'relative deviation of the forecast',
            y: 'P99, s',
            series: [{ name: setup.name, points: sweep.map(({ error, latency }) => [error, latency.p99] as const) }],
          },
        ]),
      ],
      ['oserve-timeline', timelineSvg(setup, ours)],
    ],
  };
}

/** One kind of requests: there is no change to follow, so ours must be as good as static, and settle soon. */
function homogeneous() {
  const mixed = setupOf({ model: 'facebook/opt-30b', gpus: 8, trace: 'azure', span: 2 });
  const common = mixed.demand.indexOf(Math.max(...mixed.demand));
  const keep = Array.from({ length: mixed.requests.count }, (_, i) => i).filter((i) => mixed.kinds[i] === common);
  // An even rate, because the rest of a burst of one kind would be a burst.
  const lastS = mixed.requests.arrival[mixed.requests.count - 1] ?? 1;
  const pick = (from: ArrayLike<number>) => Int32Array.from(keep, (i) => from[i] ?? 1);
  const setup: Setup = {
    ...mixed,
    requests: {
      count: keep.length,
      arrival: Float64Array.from(keep, (_, i) => ((i + 0.5) * lastS) / keep.length),
      input: pick(mixed.requests.input),
      output: pick(mixed.requests.output),
    },
    kinds: pick(mixed.kinds),
    judged: pick(mixed.judged),
    before: { ...mixed.before, counts: mixed.before.names.map(() => []) },
    demand: mixed.demand.map((_, j) => (j === common ? keep.length / lastS : 0)),
  };
  const still = bestStatic(setup);
  const ours = runOurs(setup, knowing(setup));
  const last = ours.slots.findLastIndex(({ switched }) => switched);
  return [
    row('one kind: P99 of ours over the best static', '×', ours.latency.p99 / still.latency.p99, {
      paper: 1,
      band: [0, 1.03],
    }),
    row('one kind: slot of the last switch', '', last + 1, { paper: 3, band: [0, 3] }),
    statement('one kind: nothing is lost', ours.unanswered === 0),
  ];
}

/** Forecasts only the sum; kinds have their shares of the whole history. */
function untyped(setup: Setup): FittedForecaster {
  return {
    name: 'without kinds',
    forecast(history: History, horizon: number) {
      const sums = history.counts.map((series) => series.reduce((sum, one) => sum + one, 0));
      const total = sums.reduce((sum, one) => sum + one, 0);
      const last = history.counts.reduce((sum, series) => sum + (series.at(-1) ?? 0), 0);
      const demand = setup.demand.reduce((sum, one) => sum + one, 0);
      const mean = sums.map((sum, j) => {
        const share = total > 0 ? sum / total : (setup.demand[j] ?? 0) / demand;
        return new Array<number>(horizon).fill((total > 0 ? last : demand * SLOT_S) * share);
      });
      return { mean, low: mean, high: mean, notes: [] };
    },
  };
}

/** Table 1: the deployment in each minute, and why. */
function timelineTable({ table: { kinds } }: Setup, ours: TimelineResult): string {
  const rows = ours.slots.map(({ slot, demand, plan, p99S, note }) => [
    slot,
    ...demand,
    planText(plan),
    p99S.toFixed(1),
    note ?? '',
  ]);
  return table(['minute', ...kinds.map(({ name }) => name), 'replicas', 'P99 s', 'why'], rows);
}

function timelineSvg(setup: Setup, ours: TimelineResult): string {
  const { slots } = ours;
  const demand = setup.table.kinds.map(({ name }, j) => ({
    name,
    points: slots.map(({ slot, demand: of }) => [slot, (of[j] ?? 0) / SLOT_S] as const),
  }));
  const groups = [...new Set(slots.flatMap(({ plan }) => plan.map(({ shape }) => `TP ${shape.tp} × PP ${shape.pp}`)))];
  const replicas = groups.map((name) => ({
    name,
    points: slots.map(({ slot, plan }) => {
      const own = plan.filter(({ shape }) => `TP ${shape.tp} × PP ${shape.pp}` === name);
      return [slot, own.reduce((sum, group) => sum + group.replicas, 0)] as const;
    }),
  }));
  return chartsSvg([
    { title: 'Demand by kind', x: 'minute', y: 'requests/s', series: demand },
    { title: 'Replicas', x: 'minute', y: 'replicas', series: replicas },
    {
      title: 'P99 of the minute',
      x: 'minute',
      y: 's',
      series: [{ name: 'ours', points: slots.map(({ slot, p99S }) => [slot, p99S] as const) }],
    },
  ]);
}
