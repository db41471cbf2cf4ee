import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import * as z from 'zod';
import { dataPath, parseAs, readJson } from '../catalogue/catalogue.ts';
import { PRECISIONS, type Precision } from '../catalogue/precision.ts';

type Row = Record<string, string>;

/** Reads a CSV file of this project: without quotes, with `#` comments, column names in the first line after them. */
export function readCsv(name: string): Row[] {
  const raw = readFileSync(dataPath(`measured/${name}`));
  const text = (name.endsWith('.gz') ? gunzipSync(raw) : raw).toString('utf8');
  const [header = '', ...lines] = text.split(/\r?\n/).filter((line) => line !== '' && !line.startsWith('#'));
  const columns = header.split(',');
  return lines.map((line) => {
    const cells = line.split(',');
    return Object.fromEntries(columns.map((column, i) => [column, cells[i] ?? '']));
  });
}

export const numberIn = (row: Row, column: string): number => Number(row[column]);

interface MeasuredGemm {
  gpu: string;
  model: string;
  tp: number;
  tokens: number;
  name: 'qkv' | 'o_proj' | 'up' | 'down';
  ms: number;
}

/** Reads vidur's medians. Rows below 1 µs, the profiler's resolution, are left out as noise. */
export function measuredGemms(): MeasuredGemm[] {
  const names = ['qkv', 'o_proj', 'up', 'down'] as const;
  return readCsv('vidur-layers.csv.gz').flatMap((row) =>
    names
      .map((name) => ({
        gpu: row.gpu ?? '',
        model: row.model ?? '',
        tp: numberIn(row, 'tp'),
        tokens: numberIn(row, 'tokens'),
        name,
        ms: numberIn(row, `${name}_ms`),
      }))
      .filter(({ ms }) => ms > 0),
  );
}

interface MeasuredAllReduce {
  node: string;
  tp: number;
  bytes: number;
  ms: number;
}

export function measuredAllReduces(): MeasuredAllReduce[] {
  return readCsv('vidur-all-reduce.csv.gz').map((row) => ({
    node: row.node ?? '',
    tp: numberIn(row, 'tp'),
    bytes: numberIn(row, 'bytes'),
    ms: numberIn(row, 'median_ms'),
  }));
}

const llamaSchema = z.object({
  decode: z.object({
    input: z.number(),
    output: z.number(),
    batch: z.array(z.number()),
    ms_per_token: z.array(z.number()),
  }),
  prefill: z.object({ input: z.array(z.number()), ms: z.array(z.number()) }),
});

export function measuredLlama13b() {
  return parseAs(llamaSchema, readJson(dataPath('measured/opentela-llama2-13b.json')), 'opentela-llama2-13b.json');
}

/** The seconds that one replica needed for a whole workload. */
export interface MeasuredDrain {
  model: string;
  gpu: string;
  tp: number;
  seconds: number;
  rate: number;
  durationS: number;
  input: { mean: number; sd: number };
  output: { mean: number; sd: number };
}

export function measuredDrains(): MeasuredDrain[] {
  return readCsv('opentela-drain.csv').map((row) => ({
    model: row.model ?? '',
    gpu: row.gpu ?? '',
    tp: numberIn(row, 'tp'),
    seconds: numberIn(row, 'seconds'),
    rate: numberIn(row, 'rate'),
    durationS: numberIn(row, 'duration_s'),
    input: { mean: numberIn(row, 'input_mean'), sd: numberIn(row, 'input_sd') },
    output: { mean: numberIn(row, 'output_mean'), sd: numberIn(row, 'output_sd') },
  }));
}

/** Result of a published run of an engine with a constant number of concurrent requests. */
export interface PublishedRun {
  by: string;
  engine: string;
  measured: string;
  model: string;
  gpu: string;
  weights: Precision;
  tp: number;
  ep: boolean;
  input: number;
  output: number;
  concurrency: number;
  ttftMs: number;
  tpotMs: number;
}

export function publishedRuns(): PublishedRun[] {
  return readCsv('published-vllm.csv.gz').flatMap((row) => {
    const weights = PRECISIONS.find((one) => one === row.weights);
    if (weights === undefined) return [];
    const text = (name: string) => row[name] ?? '';
    return {
      by: text('by'),
      engine: `vLLM ${text('engine_version')}`,
      measured: text('measured'),
      model: text('model'),
      gpu: text('gpu'),
      weights,
      tp: numberIn(row, 'tp'),
      ep: row.ep === 'yes',
      input: numberIn(row, 'input'),
      output: numberIn(row, 'output'),
      concurrency: numberIn(row, 'concurrency'),
      ttftMs: numberIn(row, 'ttft_ms'),
      tpotMs: numberIn(row, 'tpot_ms'),
    };
  });
}

/** Result of a published run of an engine with a pipeline, or of the same engine on one GPU. All requests arrive at time 0. */
export interface PublishedPipeline {
  engine: string;
  model: string;
  gpu: string;
  weights: Precision;
  kv: Precision;
  tp: number;
  pp: number;
  input: number;
  output: number;
  requests: number;
  tokensPerS: number;
}

export function publishedPipelines(): PublishedPipeline[] {
  const precisionIn = (row: Row, column: string): Precision => {
    const found = PRECISIONS.find((one) => one === row[column]);
    if (found === undefined) throw new Error(`published-pipelines.csv: unknown precision ${row[column]}`);
    return found;
  };
  return readCsv('published-pipelines.csv').map((row) => ({
    engine: row.engine ?? '',
    model: row.model ?? '',
    gpu: row.gpu ?? '',
    weights: precisionIn(row, 'weights'),
    kv: precisionIn(row, 'kv'),
    tp: numberIn(row, 'tp'),
    pp: numberIn(row, 'pp'),
    input: numberIn(row, 'input'),
    output: numberIn(row, 'output'),
    requests: numberIn(row, 'requests'),
    tokensPerS: numberIn(row, 'tokens_per_s'),
  }));
}
