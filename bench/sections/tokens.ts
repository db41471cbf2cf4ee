/** Streams: throughput without pacing, and the cost of each token's path with pacing. */

import { seeded } from '../../test/support/random.ts';
import { type BenchCluster, type Memory, peak, request } from '../bench-cluster.ts';
import { Client, type Target } from '../client.ts';
import { judged, type Row } from '../report.ts';
import { median, quantile, repeated } from '../stats.ts';

const STREAMS = 64;
/** A token's event has about 190 bytes at every peer. A response with less than this per token lacks tokens. */
const TOKEN_LEAST_BYTES = 100;
const RATIO_LIMIT = 0.6;
const ADDED_P50_MS = 0.2;
const P99_MS = 20;

export interface Plan {
  seed: number;
  repeats: number;
  /** Tokens of each unpaced stream. */
  tokens: number;
  /** Tokens of each paced stream, 50 a second. */
  paced: number;
}

/** Tokens per second of `STREAMS` unpaced streams that start together. */
export async function unpaced(target: Target, tokens: number): Promise<number> {
  const clients = Array.from({ length: STREAMS }, () => new Client(target));
  await Promise.all(clients.map((client) => client.open()));
  const bytes = request(target, `stream ${tokens} 0`, { stream: true });
  const start = performance.now();
  const timings = await Promise.all(clients.map((client) => client.ask(bytes)));
  const seconds = (performance.now() - start) / 1000;
  for (const client of clients) client.close();
  const broken = timings.filter(
    ({ complete, status, bodyBytes }) => !complete || status !== 200 || bodyBytes < tokens * TOKEN_LEAST_BYTES,
  ).length;
  if (broken > 0) throw new Error(`${broken} of ${STREAMS} streams broke, or were none`);
  return (STREAMS * tokens) / seconds;
}

/** Tokens per second of each repeat. */
interface Throughput {
  direct: number[];
  through: number[];
}

async function inTurns(cluster: BenchCluster, repeats: number, tokens: number): Promise<Throughput> {
  const seen: Throughput = { direct: [], through: [] };
  for (let n = 0; n < repeats; n++) {
    seen.direct.push(await unpaced(cluster.direct, tokens));
    seen.through.push(await unpaced(cluster.through, tokens));
  }
  return seen;
}

function throughputRow(at: string, { direct, through }: Throughput): Row {
  const { median: value, least, most } = repeated(through.map((rate, n) => rate / (direct[n] ?? Number.NaN)));
  return {
    what: 'token throughput, of the engine’s own',
    at,
    direct: median(direct),
    gateway: median(through),
    value,
    unit: 'of direct',
    spread: [least, most],
  };
}

/** CLOCK_MONOTONIC in µs, like the engine's timestamps. */
function now(): number {
  const [seconds, nanos] = process.hrtime();
  return seconds * 1e6 + nanos / 1e3;
}

export interface Paced {
  /** ms from the engine's write of a token to its arrival here, for all tokens after each stream's first. */
  delays: number[];
  /** ms per output token of each stream: (last − first) / (n − 1). */
  perToken: number[];
}

const TAIL = 256;

/** One stream; its tokens' timestamps are read from the raw bytes as they arrive. */
async function watch(client: Client, bytes: Buffer, into: Paced): Promise<boolean> {
  let rest = '';
  let first = 0;
  let last = 0;
  let tokens = 0;
  const timing = await client.ask(bytes, (piece) => {
    const at = now();
    const text = rest + piece.toString('latin1');
    let end = 0;
    for (const match of text.matchAll(/"content":"(\d{16})"/g)) {
      end = match.index + match[0].length;
      if (tokens++ === 0) first = at;
      else into.delays.push((at - Number(match[1])) / 1000);
      last = at;
    }
    rest = text.slice(Math.max(end, text.length - TAIL));
  });
  if (tokens > 1) into.perToken.push((last - first) / 1000 / (tokens - 1));
  return timing.complete && timing.status === 200;
}

/** `streams` streams at 50 tokens a second whose starts are spread over 1 s, like requests of independent people. */
export async function paced(target: Target, streams: number, tokens: number, seed: number): Promise<Paced> {
  const random = seeded(seed);
  const result: Paced = { delays: [], perToken: [] };
  const bytes = request(target, `stream ${tokens} 50`, { stream: true });
  const whole = await Promise.all(
    Array.from({ length: streams }, async () => {
      const client = new Client(target);
      await client.open();
      await new Promise((resolve) => setTimeout(resolve, random() * 1000));
      const good = await watch(client, bytes, result);
      client.close();
      return good;
    }),
  );
  if (whole.includes(false))
    throw new Error(`${whole.filter((good) => !good).length} of ${streams} paced streams broke`);
  return result;
}

async function perToken(cluster: BenchCluster, streams: number, plan: Plan): Promise<Row[]> {
  const direct: Paced[] = [];
  const through: Paced[] = [];
  for (let n = 0; n < plan.repeats; n++) {
    direct.push(await paced(cluster.direct, streams, plan.paced, plan.seed + n));
    through.push(await paced(cluster.through, streams, plan.paced, plan.seed + n));
  }
  const at = `${streams} stream${streams === 1 ? '' : 's'} at 50 tokens/s`;
  const of = (side: Paced[], pick: (one: Paced) => number) => side.map(pick);
  const differences = (pick: (one: Paced) => number) => {
    const before = of(direct, pick);
    return of(through, pick).map((value, n) => value - (before[n] ?? Number.NaN));
  };
  const row = (what: string, pick: (one: Paced) => number): Row => {
    const { median: value, least, most } = repeated(differences(pick));
    const sides = { direct: median(of(direct, pick)), gateway: median(of(through, pick)) };
    return { what, at, ...sides, value, unit: 'ms', spread: [least, most] };
  };
  const p99 = repeated(of(through, (one) => quantile(one.delays, 0.99)));
  return [
    judged(
      row('added time per output token, median of the streams', (one) => median(one.perToken)),
      { most: ADDED_P50_MS },
    ),
    row('added to the median token’s way from the engine to the client', (one) => median(one.delays)),
    judged(
      {
        what: 'p99 of a token’s way (not a difference)',
        at,
        direct: median(of(direct, (one) => quantile(one.delays, 0.99))),
        gateway: p99.median,
        value: p99.median,
        unit: 'ms',
        spread: [p99.least, p99.most],
      },
      { most: P99_MS },
    ),
  ];
}

export async function tokens(cluster: BenchCluster, plan: Plan): Promise<{ rows: Row[]; loaded: Memory }> {
  const rows: Row[] = [];
  const loaded = await peak(cluster, async () => {
    // Streams are cold here, as small requests were before their warm-up: the first pair is reported, and not used
    // otherwise.
    const cold = await inTurns(cluster, 1, plan.tokens);
    rows.push(throughputRow(`${STREAMS} unpaced streams, the first since the start`, cold));
    const warm = await inTurns(cluster, plan.repeats, plan.tokens);
    rows.push(judged(throughputRow(`${STREAMS} unpaced streams`, warm), { least: RATIO_LIMIT }));
    for (const streams of [1, 256]) rows.push(...(await perToken(cluster, streams, plan)));
  });
  return { rows, loaded };
}
