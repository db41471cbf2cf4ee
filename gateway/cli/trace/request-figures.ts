/** Computes the figures of a trace's requests. One pass over lines in any order. */
import type { Chart, Series } from '../../../shared/text/svg-chart.ts';
import { Histogram } from '../../usage/hour/histogram.ts';
import { cdf } from './chart-points.ts';
import { LengthPrediction, PREDICTION_RULES } from './length-prediction.ts';
import { type MinuteBudget, ModelActivity, type OutputShare } from './model-activity.ts';
import type { Figure } from './paper-figures.ts';
import { PrefixReuse } from './prefix-reuse.ts';
import type { TraceLine } from './trace-stats.ts';
import { TraceSummary } from './trace-summary.ts';
import { zipfTiers } from './zipf-tiers.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const MINUTES_PER_HOUR = 60;
export const CLASSES = ['reasoning', 'other'] as const;
export type ModelClass = (typeof CLASSES)[number];
/** Maximum minutes of all models together: enough for ten busy models in half a year. */
const MINUTES_MAX = 3_000_000;
/** Maximum models with figures; further ones share a name. */
const MODELS_MAX = 10_000;
const OTHER_MODELS = '(further models)';
/** How many models the papers' figures show. */
const RANKED_MAX = 20;
const BURSTY_MAX = 15;
const BURSTY_OVER_TIME_MAX = 8;
const MOST_ASKED_MAX = 4;
const PERCENTILES = [0.01, ...Array.from({ length: 19 }, (_, n) => (n + 1) / 20), 0.99, 0.999];

class ModelFigures {
  requests = 0;
  input = 0;
  output = 0;
  reasoning = 0;
  readonly activity: ModelActivity;
  readonly lengths = { input: new Histogram(), output: new Histogram() };
  /** Durations in milliseconds, and per token in microseconds, because histograms count whole numbers. */
  readonly times = { total: new Histogram(), perToken: new Histogram() };
  /** By day: requests with prefix buckets, and the sum of their reusable shares. */
  readonly reuse = new Map<number, { count: number; sum: number }>();

  constructor(budget: MinuteBudget) {
    this.activity = new ModelActivity(budget);
  }
}
type Ranked = readonly [string, ModelFigures];

export class RequestFigures {
  /** Models with the class `reasoning` in the operator's settings. */
  readonly #classed: ReadonlySet<string>;
  readonly #budget: MinuteBudget = { left: MINUTES_MAX };
  readonly #models = new Map<string, ModelFigures>();
  readonly #reuse = new PrefixReuse();
  readonly #prediction = new LengthPrediction();
  readonly #summary = new TraceSummary();
  #truncated = false;

  constructor(classed: ReadonlySet<string>) {
    this.#classed = classed;
  }

  /** True if the trace was too long to remember all of it. */
  get truncated(): boolean {
    return this.#truncated || this.#reuse.truncated;
  }

  /** Counts a line. As in the paper, only answered requests are in the figures; the summary counts all. */
  add(line: TraceLine): void {
    this.#summary.add(line);
    if (line.attempt === 0 || (line.status !== null && (line.status < 200 || line.status >= 400))) return;
    const { input_tokens: input, output_tokens: output, total_ms: total } = line;
    const at = Date.parse(line.timestamp);
    const one = this.#modelOf(line.model);
    one.requests++;
    one.input += input;
    one.output += output;
    one.reasoning += line.reasoning_tokens;
    if (!one.activity.add(Math.floor(at / MINUTE_MS), input, output)) this.#truncated = true;
    if (input > 0) one.lengths.input.add(input);
    if (output > 0) one.lengths.output.add(output);
    if (total !== null && total > 0) {
      one.times.total.add(total);
      // As the paper defines it: the whole time over all tokens of the request.
      if (input + output > 0) one.times.perToken.add((total * 1_000) / (input + output));
    }
    const user = typeof line.user === 'string' ? line.user : undefined;
    this.#prediction.add({ model: line.model, user, buckets: line.prefix_buckets, input, output });
    if (line.prefix_buckets !== null) this.#addPrefix(line.model, one, Math.floor(at / DAY_MS), line.prefix_buckets);
  }

  #modelOf(name: string): ModelFigures {
    const found = this.#models.get(name);
    if (found !== undefined) return found;
    if (this.#models.size >= MODELS_MAX && name !== OTHER_MODELS) return this.#modelOf(OTHER_MODELS);
    const made = new ModelFigures(this.#budget);
    this.#models.set(name, made);
    return made;
  }

  #addPrefix(model: string, { reuse }: ModelFigures, day: number, buckets: readonly string[]): void {
    const { blocks, reused } = this.#reuse.add(model, buckets);
    if (blocks === 0) return;
    const known = reuse.get(day) ?? { count: 0, sum: 0 };
    reuse.set(day, { count: known.count + 1, sum: known.sum + reused / blocks });
  }

  /** Returns `reasoning` if the operator's settings say so, or if the model's engine reported reasoning tokens. */
  classOf(model: string): ModelClass {
    return this.#classed.has(model) || (this.#models.get(model)?.reasoning ?? 0) > 0 ? 'reasoning' : 'other';
  }

  figures(): Figure[] {
    const summary = this.#summary.facts();
    if (summary === undefined) return [];
    const models = [...this.#models].sort(([, a], [, b]) => b.input + b.output - a.input - a.output);
    const asked = [...this.#models].sort(([, a], [, b]) => b.requests - a.requests);
    return [
      { name: 'summary', charts: [], facts: summary },
      ...tokensByModel(models),
      ...burstiness(models),
      ...lengthsOf(asked.slice(0, MOST_ASKED_MAX)),
      ...outputShare(asked[0]),
      ...prefixReuse(models),
      ...this.#latency(),
      ...this.#predictability(),
    ];
  }

  #latency(): Figure[] {
    const facts: Record<string, number> = {};
    const kinds = [
      ['whole response', 's', 1_000, ({ times }: ModelFigures) => times.total],
      ['output', 'tokens', 1, ({ lengths }: ModelFigures) => lengths.output],
      ['time per token', 'ms', 1_000, ({ times }: ModelFigures) => times.perToken],
    ] as const;
    const charts = kinds.map(([title, unit, divisor, of]): Chart => {
      const series = CLASSES.flatMap((kind) => {
        const all = new Histogram();
        for (const [model, one] of this.#models) if (this.classOf(model) === kind) all.merge(of(one).state());
        return distribution(`${title}, ${kind}`, kind, all, divisor, facts);
      });
      return { title, x: unit, y: 'share of requests', series, log: 'x' };
    });
    return figure('latency', charts, facts);
  }

  #predictability(): Figure[] {
    const facts: Record<string, number> = {};
    const series = PREDICTION_RULES.flatMap((rule): Series[] => {
      const { relative, tokens, count } = this.#prediction.errors[rule];
      if (count === 0) return [];
      const errors = relative.sort((a, b) => a - b);
      facts[`${rule}: mean absolute error, tokens`] = tokens / count;
      facts[`${rule}: median error`] = errors[Math.floor(errors.length / 2)] ?? 0;
      facts[`${rule}: within 25 %`] = errors.filter((error) => error <= 0.25).length / errors.length;
      return [{ name: rule, points: cdf(errors) }];
    });
    return figure(
      'predictability',
      [
        {
          title: 'Predicted length of responses',
          x: 'error over true length',
          y: 'share of requests',
          series,
          log: 'x',
        },
      ],
      facts,
    );
  }
}

/** A figure without a line is left out. */
function figure(name: Figure['name'], charts: Chart[], facts: Record<string, number>): Figure[] {
  const drawn = charts.filter(({ series }) => series.some(({ points }) => points.length > 0));
  return drawn.length === 0 ? [] : [{ name, charts: drawn, facts }];
}

function tokensByModel(models: readonly Ranked[]): Figure[] {
  const tokensOf = ({ input, output }: ModelFigures) => input + output;
  const all = models.reduce((sum, [, one]) => sum + tokensOf(one), 0);
  const top = models.slice(0, RANKED_MAX).filter(([, one]) => tokensOf(one) > 0);
  const { tiers, r2 } = zipfTiers(top.map(([, one]) => tokensOf(one)));
  const facts: Record<string, number> = {};
  for (const [name, one] of models) facts[`${name}: share of tokens`] = all === 0 ? 0 : tokensOf(one) / all;
  for (const [n, { alpha }] of tiers.entries()) facts[`tier ${n + 1}: alpha`] = alpha;
  if (tiers.length > 0) facts['R² of the tiers'] = r2;
  const series = [
    ...top.map(([name, one], n): Series => ({ name, points: [[n + 1, tokensOf(one)]] })),
    ...tiers.map(({ from, to, alpha, scale }, n): Series => {
      const at = (rank: number) => [rank, scale / rank ** alpha] as const;
      return { name: `tier ${n + 1}: α = ${alpha.toFixed(2)}`, points: [at(from), at(to)] };
    }),
  ];
  return figure('tokens-by-model', [{ title: 'Tokens by model', x: 'rank', y: 'tokens', series, log: 'xy' }], facts);
}

function burstiness(models: readonly Ranked[]): Figure[] {
  const ranked = models
    .map(([name, { activity }]) => ({ name, activity, ...activity.burstiness() }))
    .filter(({ mean }) => mean > 0)
    .sort((a, b) => b.peakToMean - a.peakToMean);
  const facts: Record<string, number> = {};
  for (const { name, activity, peakToMean, deviationToMean } of ranked.slice(0, BURSTY_MAX)) {
    facts[`${name}: peak over mean`] = peakToMean;
    facts[`${name}: deviation over mean`] = deviationToMean;
    facts[`${name}: active minutes`] = activity.activeMinutes;
  }
  const bars = ranked.slice(0, BURSTY_MAX).map(({ name, peakToMean }, n): Series => {
    return { name, points: [[n + 1, peakToMean]] };
  });
  const overTime = ranked.slice(0, BURSTY_OVER_TIME_MAX).map(({ name, activity }): Series => {
    return { name, points: activity.burstinessByHour() };
  });
  const peaks: Record<string, number> = {};
  for (const { name, points } of overTime) {
    peaks[`${name}: busiest hour over mean`] = points.reduce((most, [, ratio]) => Math.max(most, ratio), 0);
    peaks[`${name}: hours`] = points.length;
  }
  return [
    ...figure('burstiness', [{ title: 'Burstiness', x: 'rank', y: 'peak over mean', series: bars }], facts),
    ...figure(
      'burstiness-over-time',
      [{ title: 'Burstiness over time', x: 'hours since the first request', y: 'over the mean', series: overTime }],
      peaks,
    ),
  ];
}

function lengthsOf(asked: readonly Ranked[]): Figure[] {
  const facts: Record<string, number> = {};
  const charts = (['input', 'output'] as const).map((what): Chart => {
    const series = asked.flatMap(([name, { lengths }]) =>
      distribution(`${name}, ${what}`, name, lengths[what], 1, facts),
    );
    return { title: what, x: 'tokens', y: 'share of requests', series, log: 'x' };
  });
  return figure('lengths', charts, facts);
}

function outputShare(most: Ranked | undefined): Figure[] {
  if (most === undefined) return [];
  const [name, { activity, input, output }] = most;
  const hours = activity.outputShareByHour();
  const day = activity.outputShareOfBusiestDay();
  const first = hours[0]?.minute ?? 0;
  const midnight = Math.floor((day[0]?.minute ?? 0) / (24 * MINUTES_PER_HOUR)) * 24 * MINUTES_PER_HOUR;
  const band = (shares: readonly OutputShare[], x: (minute: number) => number): Series[] => {
    const line = (of: string, y: (share: OutputShare) => number): Series => ({
      name: of,
      points: shares.map((share) => [x(share.minute), Math.min(1, Math.max(0, y(share)))]),
    });
    return [
      line(name, ({ mean }) => mean),
      line('+ deviation', ({ mean, deviation }) => mean + deviation),
      line('− deviation', ({ mean, deviation }) => mean - deviation),
    ];
  };
  const requests = hours.reduce((sum, { count }) => sum + count, 0);
  const mean = hours.reduce((sum, one) => sum + one.mean * one.count, 0) / Math.max(1, requests);
  const y = 'output of all tokens';
  return figure(
    'output-share',
    [
      { title: `${name}, by hour`, x: 'days', y, series: band(hours, (at) => (at - first) / (24 * MINUTES_PER_HOUR)) },
      {
        title: 'its busiest day, by minute',
        x: 'hours',
        y,
        series: band(day, (at) => (at - midnight) / MINUTES_PER_HOUR),
      },
    ],
    {
      'mean of all requests': mean,
      'of all tokens': output / Math.max(1, input + output),
      'lowest hour': hours.reduce((least, one) => Math.min(least, one.mean), 1),
      'highest hour': hours.reduce((most_, one) => Math.max(most_, one.mean), 0),
      'requests of the busiest day': day.reduce((sum, { count }) => sum + count, 0),
    },
  );
}

function prefixReuse(models: readonly Ranked[]): Figure[] {
  const facts: Record<string, number> = {};
  const series = models
    .filter(([, { reuse }]) => reuse.size > 0)
    .slice(0, RANKED_MAX)
    .map(([name, { reuse }]): Series => {
      const days = [...reuse].sort(([a], [b]) => a - b);
      const [first, last] = [days[0]?.[0] ?? 0, days.at(-1)?.[0] ?? 0];
      const total = days.reduce((sum, [, one]) => sum + one.sum, 0);
      const requests = days.reduce((sum, [, one]) => sum + one.count, 0);
      facts[`${name}: mean of all requests`] = total / requests;
      facts[`${name}: first day`] = (days[0]?.[1].sum ?? 0) / (days[0]?.[1].count ?? 1);
      facts[`${name}: last day`] = (days.at(-1)?.[1].sum ?? 0) / (days.at(-1)?.[1].count ?? 1);
      const part = (day: number) => (100 * (day - first)) / Math.max(1, last - first);
      return { name, points: days.map(([day, { count, sum }]) => [part(day), (100 * sum) / count]) };
    });
  return figure(
    'prefix-reuse',
    [{ title: 'Reusable prefixes', x: "% of the model's days", y: '% of the blocks of a prompt', series }],
    facts,
  );
}

/** Adds the percentiles of a distribution to `facts`, and returns its line. */
function distribution(
  fact: string,
  name: string,
  of: Histogram,
  divisor: number,
  facts: Record<string, number>,
): Series[] {
  if (of.count === 0) return [];
  for (const p of [0.5, 0.95, 0.99]) facts[`${fact}: p${p * 100}`] = of.percentile(p) / divisor;
  return [{ name, points: PERCENTILES.map((p) => [of.percentile(p) / divisor, p] as const) }];
}
