import { table } from '../../../scheduler/validate/text-table.ts';
import { chartsSvg } from '../../../shared/text/svg-chart.ts';
import { type Allowed, type Miss, row } from '../rows.ts';
import type { Cell } from './latency-cells.ts';
import { POLICIES, type PolicyName } from './policies.ts';
import type { Section } from './section.ts';

type Figure = (of: Cell['results'][PolicyName]) => number;

const p99: Figure = ({ tail }) => tail.at(-1) ?? 0;
const PERCENTILES = [95, 96, 97, 98, 99] as const;

/** Ratio of a policy's figure to ours, by cell. */
const ratios = (cells: readonly Cell[], name: PolicyName, of: Figure): number[] =>
  cells.map(({ results }) => Math.max(1e-9, of(results[name])) / Math.max(1e-9, of(results.ours)));
const geometric = (values: readonly number[]): number =>
  Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / Math.max(1, values.length));

/** Ratio of static's P99 to the lowest that was found: ours, or with the next minutes known and free switches. */
const bounds = (cells: readonly Cell[]): number[] =>
  cells.map(({ results }) => {
    const least = Math.min(p99(results.static), p99(results.ours), p99(results['ours, foreseeing']));
    return Math.max(1e-9, p99(results.static)) / Math.max(1e-9, least);
  });

const STATIC_IS_GOOD =
  'in three quick runs static was the best uniform deployment in hindsight too, and true kinds made it 1.19 × at most; a gateway misjudges 46 % of the kinds of ServeGen at arrival';
const LIKE_STATIC = 'it is level with static, which has little to even out';

/** The paper's claims about P99 relative to a policy: on average, and at most. */
const CLAIMED: {
  name: PolicyName;
  paper: { mean: number; largest: number };
  /** The part that is known to be missed: the ratio is at least this, for the reason `why`. */
  missed?: { mean?: number; largest?: number };
  why: string;
}[] = [
  {
    name: 'static',
    paper: { mean: 1.5, largest: 2 },
    missed: { mean: 0.9, largest: 1 },
    why: STATIC_IS_GOOD,
  },
  {
    name: 'static, TP only',
    paper: { mean: 1.5, largest: 2 },
    missed: { mean: 0.9, largest: 1 },
    why: 'the same as static in three quick runs: stages have bubbles, so no deployment there has pipelines',
  },
  {
    name: 'reload',
    paper: { mean: 1.3, largest: 1.5 },
    why: "our model of it follows the last three minutes with uniform shapes, and has the paper's switch of 10 s",
  },
  {
    name: 'Llumnix',
    paper: { mean: 1.32, largest: 1.51 },
    missed: { mean: 0.9, largest: 1 },
    why: `our model of it moves running requests every 2 s on the deployment of static: ${LIKE_STATIC}`,
  },
  {
    name: 'Dynamo',
    paper: { mean: 1.12, largest: 1.2 },
    missed: { mean: 0.9, largest: 1 },
    why: "its planner's own rule every 180 s, on the deployment that was best on the past, with separate prefill replicas or without; its engines and router are our model",
  },
];

const SOME_RUNS = 'a part of the runs: the figure of the paper is of all';

/** At least the paper's value or, if that is known to be missed, at least `missed`. */
function atLeast(paper: number, whole: boolean, missed: number | undefined, reason: string): Allowed {
  if (!whole) return { paper, reported: SOME_RUNS };
  const miss: Miss | undefined = missed === undefined ? undefined : { band: [missed, paper], reason };
  return { paper, band: [paper, 1_000], ...(miss && { miss }) };
}

/** `cells`: at least one. `whole`: true if they are all the cells to which the paper's figures apply. */
export function latencyClaims(cells: readonly Cell[], whole: boolean): Section {
  const lost = cells.flatMap(({ results }) => Object.values(results)).reduce((sum, one) => sum + one.unanswered, 0);
  const same = ratios(cells, 'ours, kinds ignored', p99);
  const big = cells.filter(({ gpus }) => gpus === 32);
  const over = (name: PolicyName, of: Figure) => geometric(ratios(cells, name, of));
  return {
    title: `Latency against other ways to serve (Figures 9 to 12, 17, 18): ${cells.length} runs`,
    rows: [
      row('requests without an answer, all runs', '', lost, { band: [0, 0] }),
      ...CLAIMED.flatMap(({ name, paper, missed, why }) => [
        row(
          `P99 of ${name} over ours, geometric mean`,
          '×',
          over(name, p99),
          atLeast(paper.mean, whole, missed?.mean, why),
        ),
        row(
          `P99 of ${name} over ours, largest`,
          '×',
          Math.max(...ratios(cells, name, p99)),
          atLeast(paper.largest, whole, missed?.largest, why),
        ),
      ]),
      ...groupsOf(cells, ({ trace }) => trace).flatMap(([trace, own]) => [
        row(`${trace}: P99 of static over ours`, '×', geometric(ratios(own, 'static', p99))),
        row(
          `${trace}: P99 of static over the least that was found, the next minutes known`,
          '×',
          geometric(bounds(own)),
        ),
      ]),
      row('P99 of the best static in hindsight over ours', '×', over('static, in hindsight', p99)),
      row('P99 of ours with judged kinds over ours with the true kinds', '×', 1 / over('ours, kinds known', p99)),
      row('P99 of our replicas with kinds ignored over ours, geometric mean', '×', geometric(same)),
      row('the same, largest', '×', Math.max(...same)),
      row('P99 of the live planner over ours, geometric mean', '×', over('live planner', p99)),
      row(
        'mean latency of static over ours',
        '×',
        over('static', ({ mean }) => mean),
      ),
      row(
        'P90 of static over ours',
        '×',
        over('static', ({ p90 }) => p90),
      ),
      row(
        'P95 of static over ours',
        '×',
        over('static', ({ tail }) => tail[0] ?? 0),
      ),
      row(
        'P99 of the first token of static over ours (Appendix J)',
        '×',
        over('static', ({ ttftP99 }) => ttftP99),
      ),
      row(
        'seconds between tokens of static over ours (Appendix J)',
        '×',
        over('static', ({ tbtMean }) => tbtMean),
      ),
      row(
        'P99 of the seconds between tokens of static over ours (Appendix J)',
        '×',
        over('static', ({ tbtP99 }) => tbtP99),
      ),
      row(
        'throughput of ours over static (Figure 11)',
        '×',
        1 / over('static', ({ requestsPerS }) => requestsPerS),
        atLeast(
          1.5,
          whole,
          0.99,
          'at 0.8 of the load that either can take all requests end in both: no run is saturated',
        ),
      ),
      ...(big.length === 0
        ? []
        : [
            row(
              '32 GPUs: P99 of static over ours, largest',
              '×',
              Math.max(...ratios(big, 'static', p99)),
              atLeast(1.9, whole, 0.9, STATIC_IS_GOOD),
            ),
          ]),
    ],
    verdicts: CLAIMED.map(({ name, paper, why }) => {
      const all = ratios(cells, name, p99);
      const [mean, largest] = [geometric(all), Math.max(...all)];
      return {
        claim: `P99 is ${paper.mean} × better on average and up to ${paper.largest} × than ${name}`,
        verdict:
          mean < paper.mean || largest < paper.largest
            ? 'refuted'
            : mean >= 1.05 * paper.mean
              ? 'better'
              : 'reproduced',
        reason: `${mean.toFixed(2)} × on average, ${Math.min(...all).toFixed(2)} to ${largest.toFixed(2)} × in single runs: ${why}`,
      };
    }),
    text: `${summaryTable(cells)}\n\n${latencyTable(cells)}`,
    pictures: [
      ['oserve-latency', tailSvg(cells)],
      ['oserve-spans', spansSvg(cells)],
    ],
  };
}

/** Geometric means over all spans of both traces, by model and GPUs. */
function summaryTable(cells: readonly Cell[]): string {
  const rows = groupsOf(cells, ({ model, gpus }) => `${model.split('/').at(-1)} on ${gpus}`).map(([name, own]) => [
    name,
    own.length,
    ...POLICIES.filter((policy) => policy !== 'ours').map((policy) => geometric(ratios(own, policy, p99)).toFixed(2)),
  ]);
  return table(['P99 over ours', 'runs', ...POLICIES.filter((policy) => policy !== 'ours')], rows);
}

function latencyTable(cells: readonly Cell[]): string {
  const s = (value: number) => value.toFixed(1);
  const rows = cells.flatMap(({ name, results }) =>
    POLICIES.map((policy) => {
      const { mean, p90, tail, ttftP99, tbtMean, requestsPerS, switches, deployment } = results[policy];
      const times = [mean, p90, ...tail, ttftP99].map(s);
      const gain = (p99(results.static) / p99(results[policy])).toFixed(2);
      return [name, policy, gain, ...times, (tbtMean * 1e3).toFixed(0), s(requestsPerS), switches, deployment];
    }),
  );
  const tail = PERCENTILES.map((one) => `P${one}`);
  return table(
    ['run', 'policy', 'P99 gain', 'mean', 'P90', ...tail, 'TTFT P99', 'TBT ms', 'req/s', 'switches', 'begins with'],
    rows,
  );
}

/** Policies in a chart: Dynamo's values are several times those of all others, and would flatten them. */
const NOT_DRAWN: readonly PolicyName[] = ['Dynamo', 'ours, foreseeing'];
const DRAWN = POLICIES.filter((name) => !NOT_DRAWN.includes(name));

function tailSvg(cells: readonly Cell[]): string {
  return chartsSvg(
    groupsOf(cells, ({ gpus }) => `${gpus} H100`).map(([title, own]) => ({
      title: `${title}: P90, P95 to P99 over ours`,
      x: 'slower requests, percent',
      y: 'times ours',
      series: DRAWN.map((name) => ({
        name,
        points: [
          ...PERCENTILES.map((at, i) => [100 - at, geometric(ratios(own, name, ({ tail }) => tail[i] ?? 0))] as const),
          [10, geometric(ratios(own, name, ({ p90 }) => p90))] as const,
        ].sort(([a], [b]) => a - b),
      })),
    })),
  );
}

function spansSvg(cells: readonly Cell[]): string {
  return chartsSvg(
    groupsOf(cells, ({ trace }) => trace).map(([title, own]) => ({
      title: `${title}: P99 of static over ours`,
      x: 'span',
      y: 'times ours',
      series: groupsOf(own, ({ gpus }) => `${gpus} H100, mean of models`).map(([name, sized]) => ({
        name,
        points: groupsOf(sized, ({ span }) => span).map(
          ([span, cellsOf]) => [span + 1, geometric(ratios(cellsOf, 'static', p99))] as const,
        ),
      })),
    })),
  );
}

function groupsOf<K>(cells: readonly Cell[], of: (cell: Cell) => K): [K, Cell[]][] {
  const groups = new Map<K, Cell[]>();
  for (const cell of cells) groups.set(of(cell), [...(groups.get(of(cell)) ?? []), cell]);
  return [...groups];
}
