/**
 * `npm run bench:reports`: how much reports over many usage records add to a token's path through a gateway in one Node
 * process. Alternates between no reports and continuous reads of a trace, a user's requests and the totals. `--rows N
 * --streams N --rate N --seconds N --repeats N`. Exit code 1 if the requirement is missed.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { endAll } from '../test/support/processes.ts';
import { fillHour } from '../test/support/usage-rows.ts';
import { type BenchCluster, openBenchCluster, request, warm } from './bench-cluster.ts';
import { Client, type Target } from './client.ts';
import { aboutMachine, watchMachine } from './machine.ts';
import { judged, table } from './report.ts';
import { run } from './run.ts';
import { quantile, repeated } from './stats.ts';

const HOUR_MS = 3_600_000;
/** Limit for a token's path at 256 streams, with or without reports. */
const WAY_P99_MS = 12;
/** Streams start within this time; the measurement begins when all are flowing. */
const RAMP_MS = 1_000;
const TAIL_BYTES = 64;

const { values } = parseArgs({
  options: {
    rows: { type: 'string', default: '300000' },
    streams: { type: 'string', default: '64' },
    rate: { type: 'string', default: '20' },
    seconds: { type: 'string', default: '10' },
    repeats: { type: 'string', default: '3' },
  },
});
const [rows, streams, rate, seconds] = [values.rows, values.streams, values.rate, values.seconds].map(Number) as [
  number,
  number,
  number,
  number,
];

/** CLOCK_MONOTONIC in µs, like the engine's timestamps. */
function now(): number {
  const [whole, nanos] = process.hrtime();
  return whole * 1e6 + nanos / 1e3;
}

/** Milliseconds from the engine's write to this client's read, of tokens written after `from` (µs). */
async function watch(target: Target, from: number, way: number[]): Promise<void> {
  const client = new Client(target);
  const bytes = request(target, `stream ${Math.ceil((RAMP_MS / 1_000 + seconds) * rate)} ${rate}`, { stream: true });
  await new Promise((resolve) => setTimeout(resolve, Math.random() * RAMP_MS));
  let rest = '';
  const timing = await client.ask(bytes, (piece) => {
    const got = now();
    const text = rest + piece.toString('latin1');
    let end = 0;
    for (const match of text.matchAll(/"content":"(\d{16})"/g)) {
      end = match.index + match[0].length;
      if (Number(match[1]) >= from) way.push((got - Number(match[1])) / 1_000);
    }
    rest = text.slice(Math.max(end, text.length - TAIL_BYTES));
  });
  client.close();
  if (!timing.complete || timing.status !== 200) throw new Error(`a stream broke (${timing.status})`);
}

async function tokens(target: Target): Promise<number> {
  const way: number[] = [];
  const from = now() + RAMP_MS * 1_000;
  await Promise.all(Array.from({ length: streams }, () => watch(target, from, way)));
  return quantile(way, 0.99);
}

/**
 * Reads reports one after the other until the signal, with curl, because this process measures. Resolves with the
 * number of complete reads.
 */
async function read({ gateway }: BenchCluster, paths: readonly string[], signal: AbortSignal): Promise<number> {
  let whole = 0;
  for (let n = 0; !signal.aborted; n++) {
    const url = `${gateway.url}/admin/${paths[n % paths.length]}`;
    const args = ['-sS', '--fail', '-o', '/dev/null', '-H', `authorization: Bearer ${gateway.adminKey}`, url];
    const curl = spawn('curl', args, { stdio: ['ignore', 'ignore', 'inherit'] });
    const end = () => void curl.kill();
    signal.addEventListener('abort', end);
    const [code] = await once(curl, 'exit');
    signal.removeEventListener('abort', end);
    if (code === 0) whole++;
    else if (!signal.aborted) throw new Error(`${url}: curl ended with ${code}`);
  }
  return whole;
}

/** Writes all records into an hour that has ended. */
async function fill({ gateway }: BenchCluster): Promise<string> {
  const at = Math.floor(Date.now() / HOUR_MS) * HOUR_MS - HOUR_MS;
  const hour = new Date(at).toISOString().slice(0, 13);
  await gateway.stop();
  const from = performance.now();
  fillHour(join(gateway.data, `objects/USAGE/${hour}.sqlite`), rows, at);
  console.log(`${rows} records written in ${((performance.now() - from) / 1_000).toFixed(0)} s`);
  await gateway.restart();
  await gateway.serving(1, 20_000);
  return `trace?from=${hour}:00:00Z&to=${new Date(at + HOUR_MS).toISOString()}`;
}

async function main(): Promise<number> {
  const measuredOn = watchMachine();
  const cluster = await openBenchCluster(undefined, { env: { OTELA_RUNTIME: 'node' } });
  const trace = await fill(cluster);
  await warm(cluster.through, 2_000);
  const sides = { calm: [] as number[], reading: [] as number[] };
  let whole = 0;
  for (let n = 0; n < Number(values.repeats); n++) {
    sides.calm.push(await tokens(cluster.through));
    const ended = new AbortController();
    const reports = Promise.all([
      read(cluster, [trace], ended.signal),
      read(cluster, ['me/requests?hours=3&failed=1', 'me/hours?hours=3', 'usage', 'workload?window=3h'], ended.signal),
    ]);
    sides.reading.push(await tokens(cluster.through));
    ended.abort();
    whole += (await reports).reduce((sum, count) => sum + count, 0);
  }
  const [calm, reading] = [repeated(sides.calm), repeated(sides.reading)];
  const at = `${streams} streams at ${rate} tokens/s, ${rows} records`;
  const row = {
    what: 'p99 of a token’s way while reports are read',
    at,
    value: reading.median,
    unit: 'ms',
    spread: [reading.least, reading.most] as [number, number],
  };
  const judgedRow = judged(row, { most: WAY_P99_MS });
  const without = {
    ...row,
    what: 'the same without reports',
    value: calm.median,
    spread: [calm.least, calm.most] as [number, number],
  };
  console.log(`\n${aboutMachine(measuredOn())}\n\n${table([judgedRow, without])}\n\n${whole} reports were read whole.`);
  await endAll();
  return judgedRow.met === false ? 1 : 0;
}

await run(main);
