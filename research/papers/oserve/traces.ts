import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { exponential, seededRandom } from '../../../scheduler/simulator/random.ts';
import { type Requests, requestsFromRows } from '../../../scheduler/simulator/request-arrivals.ts';
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
 * Poisson arrivals with the rate that each service has in the minute, times `scale`. Each request has the lengths of
 * one of the service's requests in that minute. Copies of the recorded requests would multiply the bursts of a service
 * with 8 requests/s; many such services together have no bursts.
 */
export function azureByMinute({ fromS, toS, inputMax, outputMax, scale, seed }: DrawnOptions): Span {
  const rows: RequestRow[] = [];
  for (let startS = fromS; startS < toS; startS += MINUTE_S) {
    const endS = Math.min(toS, startS + MINUTE_S);
    const recorded = azure().filter(([at]) => at >= startS && at < endS);
    for (const sender of new Set(recorded.map(([, , , of]) => of))) {
      const own = recorded.filter(([, , , of]) => of === sender);
      const random = seededRandom(seed * 100_003 + Math.round(startS) * 2 + sender);
      const gapS = (endS - startS) / (own.length * scale);
      for (let at = startS + exponential(random, gapS); at < endS; at += exponential(random, gapS)) {
        const [, input, output] = own[Math.floor(random() * own.length)] ?? [0, 1, 1];
        rows.push([at - fromS, Math.min(input, inputMax), Math.min(output, outputMax), sender]);
      }
    }
  }
  return spanOf('Azure 2023 by minute, code and conversation', rows);
}

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
