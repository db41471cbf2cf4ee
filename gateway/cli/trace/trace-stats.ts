/**
 * Statistics of a workload trace: tokens per model, burstiness, lengths, shared prompt prefixes, latency. One pass over
 * lines in any order.
 */
import * as z from 'zod';
import { Histogram } from '../../usage/hour/histogram.ts';
import { PrefixReuse } from './prefix-reuse.ts';

/** A trace line of any version. Absent members get the defaults below. */
export const traceLineSchema = z.looseObject({
  timestamp: z.iso.datetime({ offset: true }),
  model: z.string(),
  /** HTTP status; null: unknown, as for the times below. */
  status: z.number().nullable().default(200),
  input_tokens: z.number().default(0),
  output_tokens: z.number().default(0),
  cached_tokens: z.number().default(0),
  reasoning_tokens: z.number().default(0),
  first_token_ms: z.number().nullable().default(0),
  total_ms: z.number().nullable().default(0),
  attempt: z.number().default(1),
  requests: z.number().int().min(1).default(1),
  prefix_buckets: z.array(z.string()).nullable().default(null),
});
export type TraceLine = z.infer<typeof traceLineSchema>;

/** Maximum arrivals that are remembered, 8 bytes each. Further ones are not counted. */
const ARRIVALS_MAX = 5_000_000;

interface ModelStats {
  model: string;
  /** True if a request had reasoning tokens, as its engine reported. */
  reasoning: boolean;
  requests: number;
  /** Number of requests that were refused before they reached an engine. */
  refused: number;
  failed: number;
  inputTokens: number;
  outputTokens: number;
  cachedTokens: number;
  reasoningTokens: number;
  /** The model's share of all tokens in this trace. */
  share: number;
  /** Output tokens divided by input tokens. */
  outputRatio: number;
  input: Lengths;
  output: Lengths;
  firstMs: Lengths;
  totalMs: Lengths;
  /**
   * Standard deviation of the time between two requests, divided by its mean: 1 for a Poisson process, more for bursts.
   * 0 for fewer than three requests.
   */
  burstiness: number;
  /** Requests in the busiest minute, divided by the mean number per minute from the first request to the last. */
  peakToMean: number;
  /** Share of prompt blocks that followed the same blocks in an earlier line. Undefined: no line has blocks. */
  prefixReuse: number | undefined;
  blocks: number;
}

interface Lengths {
  mean: number;
  p50: number;
  p90: number;
  p99: number;
}

class ModelTrace {
  readonly input = new Histogram();
  readonly output = new Histogram();
  readonly firstMs = new Histogram();
  readonly totalMs = new Histogram();
  readonly arrivals: number[] = [];
  sums = { requests: 0, refused: 0, failed: 0, inputTokens: 0, outputTokens: 0, cachedTokens: 0, reasoningTokens: 0 };
  blocks = 0;
  reused = 0;
}

export class TraceStats {
  readonly #models = new Map<string, ModelTrace>();
  readonly #reuse = new PrefixReuse();
  #arrivals = 0;

  /** True if the trace was too long to remember all arrivals or prefixes. */
  get truncated(): boolean {
    return this.#arrivals > ARRIVALS_MAX || this.#reuse.truncated;
  }

  add(line: TraceLine): void {
    const model = this.#models.get(line.model) ?? new ModelTrace();
    this.#models.set(line.model, model);
    const { sums } = model;
    sums.requests += line.requests;
    if (line.attempt === 0) {
      sums.refused += line.requests;
      return;
    }
    if (line.status !== null && (line.status < 200 || line.status >= 400)) sums.failed++;
    sums.inputTokens += line.input_tokens;
    sums.outputTokens += line.output_tokens;
    sums.cachedTokens += line.cached_tokens;
    sums.reasoningTokens += line.reasoning_tokens;
    model.input.add(line.input_tokens);
    model.output.add(line.output_tokens);
    if (line.first_token_ms !== null && line.first_token_ms > 0) model.firstMs.add(line.first_token_ms);
    if (line.total_ms !== null) model.totalMs.add(line.total_ms);
    if (this.#arrivals++ < ARRIVALS_MAX) model.arrivals.push(Date.parse(line.timestamp));
    if (line.prefix_buckets === null) return;
    const { blocks, reused } = this.#reuse.add(line.model, line.prefix_buckets);
    model.blocks += blocks;
    model.reused += reused;
  }

  /** Returns the statistics by model, the model with the most tokens first. */
  report(): ModelStats[] {
    const all = [...this.#models];
    const tokensOf = ({ sums }: ModelTrace) => sums.inputTokens + sums.outputTokens;
    const tokens = all.reduce((sum, [, model]) => sum + tokensOf(model), 0);
    return all
      .sort(([, a], [, b]) => tokensOf(b) - tokensOf(a))
      .map(([name, model]) => ({
        model: name,
        reasoning: model.sums.reasoningTokens > 0,
        ...model.sums,
        share: tokens === 0 ? 0 : tokensOf(model) / tokens,
        outputRatio: model.sums.inputTokens === 0 ? 0 : model.sums.outputTokens / model.sums.inputTokens,
        input: lengthsOf(model.input),
        output: lengthsOf(model.output),
        firstMs: lengthsOf(model.firstMs),
        totalMs: lengthsOf(model.totalMs),
        ...paceOf(model.arrivals),
        prefixReuse: model.blocks === 0 ? undefined : model.reused / model.blocks,
        blocks: model.blocks,
      }));
  }

  /** Returns time to first token and latency, for reasoning models and for other models. */
  latencies(): { kind: 'reasoning' | 'other'; requests: number; firstMs: Lengths; totalMs: Lengths }[] {
    return (['reasoning', 'other'] as const).flatMap((kind) => {
      const firstMs = new Histogram();
      const totalMs = new Histogram();
      for (const { sums, ...model } of this.#models.values()) {
        if (sums.reasoningTokens > 0 !== (kind === 'reasoning')) continue;
        firstMs.merge(model.firstMs.state());
        totalMs.merge(model.totalMs.state());
      }
      if (totalMs.count === 0) return [];
      return [{ kind, requests: totalMs.count, firstMs: lengthsOf(firstMs), totalMs: lengthsOf(totalMs) }];
    });
  }
}

function lengthsOf(histogram: Histogram): Lengths {
  const { mean } = histogram;
  return { mean, p50: histogram.percentile(0.5), p90: histogram.percentile(0.9), p99: histogram.percentile(0.99) };
}

const MINUTE_MS = 60_000;

function paceOf(arrivals: readonly number[]): { burstiness: number; peakToMean: number } {
  const sorted = Float64Array.from(arrivals).sort();
  const [first = 0, last = 0] = [sorted[0], sorted.at(-1)];
  const gaps = sorted.length - 1;
  if (gaps < 2 || last === first) return { burstiness: 0, peakToMean: sorted.length > 0 ? 1 : 0 };
  const mean = (last - first) / gaps;
  let squares = 0;
  const minutes = new Map<number, number>();
  for (const [n, at] of sorted.entries()) {
    if (n > 0) squares += (at - (sorted[n - 1] ?? at) - mean) ** 2;
    const minute = Math.floor((at - first) / MINUTE_MS);
    minutes.set(minute, (minutes.get(minute) ?? 0) + 1);
  }
  const perMinute = sorted.length / Math.max(1, (last - first) / MINUTE_MS);
  let peak = 0;
  for (const count of minutes.values()) peak = Math.max(peak, count);
  return { burstiness: Math.sqrt(squares / gaps) / mean, peakToMean: peak / perMinute };
}
