import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
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

let azureRows: [at: number, input: number, output: number, sender: number][] | undefined;

/** Azure's hour, code and conversation together: 7.9 requests/s. */
function azure(): NonNullable<typeof azureRows> {
  azureRows ??= unpack('azure-2023')
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => {
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
  /** Most tokens of a prompt and of a response; longer ones are cut to the model's context. */
  inputMax: number;
  outputMax: number;
  /**
   * Factor of the requests: with 2, each occurs twice, the second time within some seconds. ServeGen's are drawn again
   * instead.
   */
  scale: number;
  seed: number;
}

/** Copies are spread over this many seconds around the request: in the same minute, but not in the same burst. */
const APART_S = 8;

export function azureSpan({ fromS, toS, inputMax, outputMax, scale, seed }: SpanOptions): Span {
  const random = seededRandom(seed);
  const rows: [number, number, number, number][] = [];
  for (const [at, input, output, sender] of azure()) {
    if (at < fromS || at >= toS) continue;
    const copies = Math.floor(scale) + (random() < scale - Math.floor(scale) ? 1 : 0);
    for (let i = 0; i < copies; i++) {
      const moved = i === 0 ? at : Math.min(toS - 1e-3, Math.max(fromS, at + (random() - 0.5) * APART_S));
      rows.push([moved - fromS, Math.min(input, inputMax), Math.min(output, outputMax), sender]);
    }
  }
  return spanOf('Azure 2023, code and conversation', rows);
}

/** A share of ServeGen's clients' requests; `scale` is in thousandths of them. */
export function serveGenSpan(trace: 'm-mid' | 'm-small', options: SpanOptions): Span {
  const { requests, clients } = drawServeGen(serveGen(trace), { ...options, share: options.scale / 1000 });
  return { name: `ServeGen ${trace}`, requests, senders: clients };
}

function spanOf(name: string, rows: [number, number, number, number][]): Span {
  rows.sort((a, b) => a[0] - b[0]);
  return {
    name,
    requests: requestsFromRows(rows.map(([at, input, output]) => [at, input, output] as const)),
    senders: Int32Array.from(rows, ([, , , sender]) => sender),
  };
}
