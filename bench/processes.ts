/**
 * `npm run bench:processes`: what a request costs with two gateway processes on one PostgreSQL: processor time of the
 * process with the agent's socket, of a process that forwards to it, and of PostgreSQL; rows and write-ahead log. Also
 * what they use without requests. Processor time is hardly affected by other programs on the machine. `--seconds N
 * --repeats N`. Writes bench/results/processes.json. Needs wrk and PostgreSQL.
 */
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { startAgent } from '../test/support/agent.ts';
import { GatewayProcesses } from '../test/support/gateway-processes.ts';
import { descendants, memoryOf } from '../test/support/process-table.ts';
import { eventually } from '../test/support/processes.ts';
import { ROOT } from '../test/support/where.ts';
import { startEngine, warm } from './bench-cluster.ts';
import type { Target } from './client.ts';
import { MODEL } from './engine-answers.ts';
import { watchMachine } from './machine.ts';
import { ranFor } from './ran-for.ts';
import { publish, type Row } from './report.ts';
import { run } from './run.ts';
import { wrk } from './sections/throughput.ts';
import { median, repeated } from './stats.ts';

const CONNECTIONS = 16;
const CONNECTED_MS = 60_000;
const STORED_MS = 60_000;
const WARM_REQUESTS = 4_000;
const NS_PER_US = 1_000;
const NS_PER_MS = 1_000_000;

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '5' },
    repeats: { type: 'string', default: '3' },
    out: { type: 'string', default: join(ROOT, 'bench/results/processes.json') },
  },
});
const [seconds, repeats] = [Number(values.seconds), Number(values.repeats)];

/** Counters of both processes and of PostgreSQL. Times in ns of processor time. */
interface Counters {
  serving: number;
  forwarding: number;
  postgres: number;
  walBytes: number;
  records: number;
  recordBytes: number;
}

interface Setup {
  /** The process with the agent's socket, and the process that forwards. */
  local: Target;
  forwarded: Target;
  memory(): { serving: number; forwarding: number };
  counters(): Promise<Counters>;
}

async function start(): Promise<Setup> {
  const processes = await GatewayProcesses.start(0);
  const serving = await processes.add();
  // Agents do not learn the address of this process, so it forwards all its requests.
  const forwarding = await processes.add(false);
  const engine = await startEngine();
  const token = await serving.createJoinToken();
  await startAgent({ gateways: [serving.url], token, engineUrl: engine.url });
  for (const gateway of [serving, forwarding]) await gateway.serving(1, CONNECTED_MS, MODEL);
  const key = await serving.createKey('bench', { limits: { requests_per_minute: 10_000_000 } });
  const counts = `SELECT (SELECT count(*) FROM usage_records), pg_total_relation_size('usage_records'),
    pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')`;
  const postgres = () => [processes.server.pid, ...descendants(processes.server.pid)];
  return {
    local: { url: serving.url, key },
    forwarded: { url: forwarding.url, key },
    memory: () => ({
      serving: memoryOf(serving.process.pid).rssMib,
      forwarding: memoryOf(forwarding.process.pid).rssMib,
    }),
    counters: async () => {
      const times = {
        serving: ranFor(serving.process.pid),
        forwarding: ranFor(forwarding.process.pid),
        postgres: postgres().reduce((sum, pid) => sum + ranFor(pid), 0),
      };
      const [[records, recordBytes, walBytes] = []] = await processes.rows(counts);
      return { ...times, records: Number(records), recordBytes: Number(recordBytes), walBytes: Number(walBytes) };
    },
  };
}

/** Counters with the values that `of` returns for their names. */
function countersBy(of: (name: keyof Counters) => number): Counters {
  return {
    serving: of('serving'),
    forwarding: of('forwarding'),
    postgres: of('postgres'),
    walBytes: of('walBytes'),
    records: of('records'),
    recordBytes: of('recordBytes'),
  };
}

function difference(after: Counters, before: Counters): Counters {
  return countersBy((name) => after[name] - before[name]);
}

function scaled(counters: Counters, factor: number): Counters {
  return countersBy((name) => counters[name] * factor);
}

/** Counters without requests, per second. */
async function idle(setup: Setup): Promise<Counters> {
  const before = await setup.counters();
  await delay(seconds * 1_000);
  return scaled(difference(await setup.counters(), before), 1 / seconds);
}

/** Counters per request, without what the processes use anyway. */
async function cost(setup: Setup, target: Target, base: Counters): Promise<Counters> {
  const before = await setup.counters();
  const startedAt = performance.now();
  const { perSecond } = await wrk(target, CONNECTIONS, seconds);
  // wrk does not count the requests that run at its end.
  const least = Math.floor(perSecond * seconds * 0.99);
  await eventually('the records of all requests', STORED_MS, async () =>
    (await setup.counters()).records - before.records >= least ? true : undefined,
  );
  const elapsedS = (performance.now() - startedAt) / 1_000;
  const all = difference(await setup.counters(), before);
  return scaled(difference(all, scaled(base, elapsedS)), 1 / all.records);
}

const NAMES = [
  ['serving', 'processor time of the process with the agent’s socket', 'µs', NS_PER_US],
  ['forwarding', 'processor time of a process that forwards', 'µs', NS_PER_US],
  ['postgres', 'processor time of PostgreSQL', 'µs', NS_PER_US],
  ['walBytes', 'write-ahead log', 'bytes', 1],
  ['recordBytes', 'usage record with its indexes', 'bytes', 1],
] as const;

async function main(): Promise<number> {
  const measuredOn = watchMachine();
  const setup = await start();
  const started = setup.memory();
  for (const target of [setup.local, setup.forwarded]) await warm(target, WARM_REQUESTS);
  const base = await idle(setup);
  const costs: Record<'local' | 'forwarded', Counters[]> = { local: [], forwarded: [] };
  for (let n = 0; n < repeats; n++)
    for (const way of ['local', 'forwarded'] as const) costs[way].push(await cost(setup, setup[way], base));
  const rows: Row[] = [];
  for (const way of ['local', 'forwarded'] as const)
    for (const [name, what, unit, per] of NAMES) {
      if (way === 'local' && name === 'forwarding') continue;
      const { median: value, least, most } = repeated(costs[way].map((one) => one[name] / per));
      rows.push({ what, at: `a ${way} request`, value, unit, spread: [least, most] });
    }
  for (const [name, what] of NAMES.slice(0, 3))
    rows.push({ what, at: 'without requests', value: base[name] / NS_PER_MS, unit: 'ms/s' });
  const loaded = setup.memory();
  rows.push({ what: 'memory of a process', at: 'after the start', value: median(Object.values(started)), unit: 'MiB' });
  rows.push({
    what: 'memory of a process',
    at: 'after the load',
    value: Math.max(...Object.values(loaded)),
    unit: 'MiB',
  });
  return publish(measuredOn(), rows, values.out);
}

await run(main);
