/** Computes the figures that describe a serving trace, as numbers and as charts. One pass over lines in any order. */
import * as z from 'zod';
import type { Chart, Series } from '../../../shared/text/svg-chart.ts';
import { Histogram } from '../../usage/hour/histogram.ts';
import { PREDICTION_RULES, Predictability } from './length-prediction.ts';
import type { TraceLine } from './trace-stats.ts';

/** A line that `trace sample` printed: one node at one time. */
export const sampleSchema = z.object({
  timestamp: z.iso.datetime({ offset: true }),
  session: z.string(),
  gpus: z.number().min(0),
  /** True if the node's engine had requests. */
  busy: z.boolean(),
  kv_use: z.number().min(0).max(1).nullable(),
  /** Power of all GPUs of the node in watts; null: unknown. */
  power_w: z.number().min(0).nullable(),
});
export type NodeSample = z.infer<typeof sampleSchema>;

interface Figure {
  /** Name of the figure's file. */
  name: string;
  charts: Chart[];
  /** Single numbers by name. */
  facts: Record<string, number>;
}

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const CLASSES = ['reasoning', 'other'] as const;
/** Maximum counters of tokens, one for each model and minute: enough for ten models in a year. */
const MINUTES_MAX = 6_000_000;
const MOMENTS_MAX = 1_000_000;
/** Maximum days in a chart: ten years. */
const DAYS_MAX = 3_660;
/** Maximum models that a chart shows separately. */
const TOP = 6;
const PERCENTILES = [0.01, ...Array.from({ length: 19 }, (_, n) => (n + 1) / 20), 0.99, 0.999];

class ModelFigures {
  input = 0;
  output = 0;
  reasoning = 0;
  readonly days = new Map<number, number>();
  readonly minutes = new Map<number, number>();
  readonly lengths = { input: new Histogram(), output: new Histogram() };
  /** Durations in microseconds, because histograms count whole numbers. */
  readonly times = { total: new Histogram(), perToken: new Histogram() };
}

export class TraceFigures {
  /** Models whose class is `reasoning` in the operator's settings. */
  readonly #classed: ReadonlySet<string>;
  readonly #models = new Map<string, ModelFigures>();
  readonly #days = new Map<number, { input: number; output: number }>();
  readonly #predict = new Predictability();
  readonly #moments = new Map<number, { gpus: number; idle: number; kv: number[]; power: number | null }>();
  #minutes = 0;
  /** The minute of the last sample, and the sessions that were sampled in it. */
  #minute: number | undefined;
  readonly #sampled = new Set<string>();
  /** True if the trace was too long to remember all of it. */
  truncated = false;

  constructor(classed: ReadonlySet<string>) {
    this.#classed = classed;
  }

  add(line: TraceLine): void {
    if (line.attempt === 0) return;
    const { model, input_tokens: input, output_tokens: output, total_ms: total, first_token_ms: first } = line;
    const at = Date.parse(line.timestamp);
    const known = this.#models.get(model) ?? new ModelFigures();
    this.#models.set(model, known);
    known.input += input;
    known.output += output;
    known.reasoning += line.reasoning_tokens;
    const day = Math.floor(at / DAY_MS) * DAY_MS;
    add(known.days, day, input + output);
    const both = this.#days.get(day) ?? { input: 0, output: 0 };
    this.#days.set(day, { input: both.input + input, output: both.output + output });
    this.#addMinute(known, Math.floor(at / MINUTE_MS), input + output);
    if (input > 0) known.lengths.input.add(input);
    if (output > 0) known.lengths.output.add(output);
    if (total !== null && total > 0) known.times.total.add(total);
    if (total !== null && output > 1) known.times.perToken.add(((total - (first ?? 0)) / (output - 1)) * 1_000);
    const user = typeof line.user === 'string' ? line.user : undefined;
    this.#predict.add({ model, user, buckets: line.prefix_buckets, input, output });
  }

  #addMinute({ minutes }: ModelFigures, minute: number, tokens: number): void {
    if (tokens === 0) return;
    if (!minutes.has(minute) && ++this.#minutes > MINUTES_MAX) this.truncated = true;
    else add(minutes, minute, tokens);
  }

  /**
   * Adds a sample. A node counts once a minute, even if it is sampled more often: `trace sample --every 10` samples it
   * six times a minute.
   */
  addSample({ timestamp, session, gpus, busy, kv_use: kv, power_w: power }: NodeSample): void {
    const minute = Math.floor(Date.parse(timestamp) / MINUTE_MS) * MINUTE_MS;
    if (minute !== this.#minute) this.#sampled.clear();
    this.#minute = minute;
    if (this.#sampled.has(session)) return;
    this.#sampled.add(session);
    const known = this.#moments.get(minute) ?? { gpus: 0, idle: 0, kv: [], power: null };
    if (!this.#moments.has(minute) && this.#moments.size >= MOMENTS_MAX) {
      this.truncated = true;
      return;
    }
    known.gpus += gpus;
    known.idle += busy ? 0 : gpus;
    if (kv !== null) known.kv.push(kv);
    if (power !== null) known.power = (known.power ?? 0) + power;
    this.#moments.set(minute, known);
  }

  /** Returns the figures for which there is data: a trace has no nodes, and node samples have no requests. */
  figures(): Figure[] {
    return [...this.#ofNodes(), ...this.#ofRequests()];
  }

  #ofNodes(): Figure[] {
    const moments = [...this.#moments].sort(([a], [b]) => a - b);
    const first = moments[0]?.[0];
    if (first === undefined) return [];
    const hours = (at: number) => (at - first) / 3_600_000;
    const line = (name: string, value: (one: (typeof moments)[0][1]) => number | null): Series => ({
      name,
      points: moments.flatMap(([at, one]) => {
        const y = value(one);
        return y === null ? [] : [[hours(at), y] as const];
      }),
    });
    const mean = (of: Series) => of.points.reduce((sum, [, y]) => sum + y, 0) / Math.max(1, of.points.length);
    const [all, idle] = [line('GPUs', ({ gpus }) => gpus), line('idle', (one) => one.idle)];
    const kv = line('KV cache in use', (one) =>
      one.kv.length === 0 ? null : one.kv.reduce((a, b) => a + b, 0) / one.kv.length,
    );
    const power = line('power', (one) => one.power);
    const figures: Figure[] = [
      figure('idle-gpus', [{ title: 'Idle GPUs', x: 'hours', y: 'GPUs', series: [all, idle] }], {
        idle_share: mean(all) === 0 ? 0 : mean(idle) / mean(all),
      }),
    ];
    if (kv.points.length > 0)
      figures.push(
        figure('kv-use', [{ title: 'KV cache', x: 'hours', y: 'share in use', series: [kv] }], { mean: mean(kv) }),
      );
    if (power.points.length > 0)
      // Each sample counts until the next one, but at most for an hour, so that gaps in the sampling are not counted.
      figures.push(
        figure('energy', [{ title: 'Power', x: 'hours', y: 'W', series: [power] }], {
          mean_w: mean(power),
          kwh: energyOf(power),
        }),
      );
    return figures;
  }

  #ofRequests(): Figure[] {
    const models = [...this.#models].sort(([, a], [, b]) => b.input + b.output - a.input - a.output);
    const days = [...this.#days].sort(([a], [b]) => a - b);
    const first = days[0]?.[0];
    if (first === undefined) return [];
    const count = Math.min(DAYS_MAX, ((days.at(-1)?.[0] ?? first) - first) / DAY_MS + 1);
    // A day without a trace line had no requests, so it is a point with value 0. Without this point, the chart would
    // connect the neighboring days by a line and show requests.
    const daily = (of: ReadonlyMap<number, number>) =>
      Array.from({ length: count }, (_, n) => [n, of.get(first + n * DAY_MS) ?? 0] as const);
    const tokens = models.reduce((sum, [, one]) => sum + one.input + one.output, 0);
    const top = models.slice(0, TOP);
    return [
      figure(
        'tokens-by-model',
        [
          {
            title: 'Tokens by model',
            x: 'days',
            y: 'tokens a day',
            series: top.map(([name, one]) => ({ name, points: daily(one.days) })),
          },
        ],
        Object.fromEntries(models.map(([name, one]) => [name, tokens === 0 ? 0 : (one.input + one.output) / tokens])),
      ),
      this.#burstiness(top),
      figure(
        'input-and-output',
        [
          {
            title: 'Input and output',
            x: 'days',
            y: 'tokens a day',
            series: (['input', 'output'] as const).map((name) => ({
              name,
              points: daily(new Map(days.map(([day, one]) => [day, one[name]]))),
            })),
          },
        ],
        {
          output_per_input:
            models.reduce((sum, [, one]) => sum + one.output, 0) /
            Math.max(
              1,
              models.reduce((sum, [, one]) => sum + one.input, 0),
            ),
        },
      ),
      this.#cdfs('lengths', ['input', 'output'], 'tokens', (one, what) => one.lengths[what], 1),
      this.#cdfs('latency', ['whole response'], 's', (one) => one.times.total, 1_000),
      this.#cdfs('time-per-token', ['time per token'], 'ms', (one) => one.times.perToken, 1_000),
      this.#predictability(),
    ];
  }

  /** Leaves out minutes without tokens, so that a service without requests at night does not appear bursty. */
  #burstiness(models: readonly [string, ModelFigures][]): Figure {
    const facts: Record<string, number> = {};
    const series = models.map(([name, { minutes }]): Series => {
      const counts = [...minutes.values()].sort((a, b) => a - b);
      const mean = counts.reduce((sum, n) => sum + n, 0) / Math.max(1, counts.length);
      const deviation = Math.sqrt(counts.reduce((sum, n) => sum + (n - mean) ** 2, 0) / Math.max(1, counts.length));
      facts[`${name}: deviation over mean`] = mean === 0 ? 0 : deviation / mean;
      facts[`${name}: peak over mean`] = mean === 0 ? 0 : (counts.at(-1) ?? 0) / mean;
      facts[`${name}: active minutes`] = counts.length;
      return { name, points: cdf(counts.map((n) => (mean === 0 ? 0 : n / mean))) };
    });
    return figure(
      'burstiness',
      [{ title: 'Tokens of active minutes', x: 'over the mean', y: 'share of minutes', series, log: 'x' }],
      facts,
    );
  }

  #cdfs<What extends string>(
    name: string,
    what: readonly What[],
    unit: string,
    of: (model: ModelFigures, what: What) => Histogram,
    divisor: number,
  ): Figure {
    const facts: Record<string, number> = {};
    const charts = what.map((one): Chart => {
      const series = CLASSES.flatMap((kind): Series[] => {
        const all = new Histogram();
        for (const [model, figures] of this.#models)
          if (this.#classOf(model) === kind) all.merge(of(figures, one).state());
        if (all.count === 0) return [];
        for (const p of [0.5, 0.95, 0.99]) facts[`${one}, ${kind}: p${p * 100}`] = all.percentile(p) / divisor;
        return [{ name: kind, points: PERCENTILES.map((p) => [all.percentile(p) / divisor, p] as const) }];
      });
      return { title: one, x: unit, y: 'share of requests', series, log: 'x' };
    });
    return { name, charts, facts };
  }

  /**
   * Returns `reasoning` if the operator's settings give the model this class, or if its engine reported reasoning
   * tokens.
   */
  #classOf(model: string): (typeof CLASSES)[number] {
    return this.#classed.has(model) || (this.#models.get(model)?.reasoning ?? 0) > 0 ? 'reasoning' : 'other';
  }

  #predictability(): Figure {
    const facts: Record<string, number> = {};
    const series = PREDICTION_RULES.flatMap((rule): Series[] => {
      const errors = this.#predict.errors[rule].sort((a, b) => a - b);
      if (errors.length === 0) return [];
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

function figure(name: string, charts: Chart[], facts: Record<string, number>): Figure {
  return { name, charts, facts };
}

function add(map: Map<number, number>, key: number, by: number): void {
  map.set(key, (map.get(key) ?? 0) + by);
}

/** Returns the cumulative distribution, with at most as many points as a chart shows. `sorted`: ascending. */
function cdf(sorted: readonly number[]): [number, number][] {
  const every = Math.max(1, Math.floor(sorted.length / 200));
  return sorted.flatMap((x, n): [number, number][] =>
    n % every === 0 || n === sorted.length - 1 ? [[x, (n + 1) / sorted.length]] : [],
  );
}

function energyOf({ points }: Series): number {
  let wattHours = 0;
  for (const [n, [hour, watts]] of points.entries()) {
    const next = points[n + 1]?.[0];
    if (next !== undefined) wattHours += watts * Math.min(1, next - hour);
  }
  return wattHours / 1_000;
}
