import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { exponential, seededRandom } from '../../../scheduler/simulator/random.ts';
import { type Requests, requestsFromRows } from '../../../scheduler/simulator/request-arrivals.ts';
import { readTrace } from '../../../scheduler/traces/read-trace.ts';
import { drawServeGen, parseServeGen, type ServeGen } from '../../workload/servegen.ts';

/** Requests of a time span, each with its sender. */
export interface Span {
  name: string;
  requests: Requests;
  /** Number of the service or client of each request: the key of its history. */
  senders: Int32Array;
}

const unpack = (name: string): string =>
  gunzipSync(readFileSync(new URL(`../traces/${name}.csv.gz`, import.meta.url))).toString();

type RequestRow = [at: number, input: number, output: number, sender: number];

let azureRows: RequestRow[] | undefined;

/** Azure's hour, code and conversation together: 7.9 requests/s. */
function azure(): readonly RequestRow[] {
  azureRows ??= unpack('azure-2023')
    .trim()
    .split('\n')
    .slice(1)
    .map((line): RequestRow => {
      const [at, input, output, service] = line.split(',');
      return [Number(at), Number(input), Number(output), service === 'code' ? 1 : 0];
    });
  return azureRows;
}

const served: Partial<Record<'m-mid' | 'm-small', ServeGen>> = {};

export function serveGen(trace: 'm-mid' | 'm-small'): ServeGen {
  const known = served[trace] ?? parseServeGen(trace, unpack(`servegen-${trace}`), unpack('servegen-lengths'));
  served[trace] = known;
  return known;
}

export interface SpanOptions {
  fromS: number;
  toS: number;
  /** Most tokens of a prompt and of a response; longer ones are cut. */
  inputMax: number;
  outputMax: number;
}

/** Requests with another rate than the trace's. */
export interface DrawnOptions extends SpanOptions {
  /** Factor of the rate of requests. */
  scale: number;
  seed: number;
}

/** The requests as they were recorded. */
export function azureSpan({ fromS, toS, inputMax, outputMax }: SpanOptions): Span {
  const rows = azure().flatMap(([at, input, output, sender]): RequestRow[] =>
    at < fromS || at >= toS ? [] : [[at - fromS, Math.min(input, inputMax), Math.min(output, outputMax), sender]],
  );
  return spanOf('Azure 2023, code and conversation', rows);
}

const MINUTE_S = 60;

/**
 * Poisson arrivals with the rate that each sender has in the minute, times `scale`. Each request has the lengths of one
 * of the sender's requests in that minute. Copies of the recorded requests would multiply the bursts of a service with
 * 8 requests/s; many such services together have no bursts.
 */
function byMinute(recorded: Iterable<RequestRow>, { fromS, toS, inputMax, outputMax, scale, seed }: DrawnOptions) {
  const groups = new Map<string, { minute: number; rows: RequestRow[] }>();
  for (const row of recorded) {
    const [at, , , sender] = row;
    if (at < fromS || at >= toS) continue;
    const minute = Math.floor((at - fromS) / MINUTE_S);
    const key = `${minute}:${sender}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { minute, rows: [row] });
    else group.rows.push(row);
  }
  const drawn: RequestRow[] = [];
  for (const { minute, rows } of groups.values()) {
    const startS = minute * MINUTE_S;
    const endS = Math.min(toS - fromS, startS + MINUTE_S);
    const [, , , sender] = rows[0] ?? [0, 1, 1, 0];
    const random = seededRandom(seed * 100_003 + Math.round(fromS + startS) * 2 + sender);
    const gapS = (endS - startS) / (rows.length * scale);
    for (let at = startS + exponential(random, gapS); at < endS; at += exponential(random, gapS)) {
      const [, input, output] = rows[Math.floor(random() * rows.length)] ?? [0, 1, 1];
      drawn.push([at, Math.min(input, inputMax), Math.min(output, outputMax), sender]);
    }
  }
  return drawn;
}

export const azureByMinute = (options: DrawnOptions): Span =>
  spanOf('Azure 2023 by minute, code and conversation', byMinute(azure(), options));

const files = new Map<string, RequestRow[]>();

/** The requests of a trace in any format that `otela-plan simulate` reads; such files name no senders. */
function rowsIn(path: string): RequestRow[] {
  const known = files.get(path);
  if (known !== undefined) return known;
  const rows = readTrace(path).rows.map(({ arrival, input, output }): RequestRow => [arrival, input, output, 0]);
  files.set(path, rows);
  return rows;
}

/** Seconds from the first request of a trace to its last one. */
export const secondsOfTrace = (path: string): number => rowsIn(path).reduce((last, [at]) => Math.max(last, at), 0);

export const fileByMinute = (path: string, options: DrawnOptions): Span =>
  spanOf(basename(path), byMinute(rowsIn(path), options));

/** A share of ServeGen's clients' requests; `scale` is in thousandths of them. */
export function serveGenSpan(trace: 'm-mid' | 'm-small', options: DrawnOptions): Span {
  const { requests, clients } = drawServeGen(serveGen(trace), { ...options, share: options.scale / 1000 });
  return { name: `ServeGen ${trace}`, requests, senders: clients };
}

function spanOf(name: string, rows: RequestRow[]): Span {
  rows.sort((a, b) => a[0] - b[0]);
  return {
    name,
    requests: requestsFromRows(rows.map(([at, input, output]) => [at, input, output] as const)),
    senders: Int32Array.from(rows, ([, , , sender]) => sender),
  };
}
