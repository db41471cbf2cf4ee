/**
 * `npm run bench:workers`: requests per second of 1, 2 and 4 equal gateway processes on one PostgreSQL, each held to a
 * fifth of a core by a control group (Linux, root). Everything else has the rest of the machine: client, engine, agents
 * and PostgreSQL. All are preferred to other programs of the machine. If `OTELA_GO` names the original's program
 * (bench/peers/original.ts), its head is measured with as many fifths of a core and as GOMAXPROCS. Then the time that a
 * request needs if the other process has the agent's socket. `--seconds N --repeats N --workers 1,2,4`. Writes
 * bench/results/workers.json; exit code 1 if a requirement is missed.
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startAgent } from '../test/support/agent.ts';
import { GatewayProcesses } from '../test/support/gateway-processes.ts';
import { atEnd, type Managed } from '../test/support/processes.ts';
import { SlowGroup } from '../test/support/slow-group.ts';
import { ROOT } from '../test/support/where.ts';
import { request, startEngine, warm } from './bench-cluster.ts';
import { Client, type Target } from './client.ts';
import { MODEL } from './engine-answers.ts';
import { watchMachine } from './machine.ts';
import { startOriginal } from './peers/original.ts';
import { judged, publish, type Row, table } from './report.ts';
import { run } from './run.ts';
import { wrk } from './sections/throughput.ts';
import { median, quantile, repeated } from './stats.ts';

/** Requests per second, as a multiple of one process. */
const LEAST: Readonly<Record<number, number>> = { 2: 1.7, 4: 3.2 };
const FORWARDED_MOST_MS = 0.5;
const AGENTS = 4;
/** Cores of each process. */
const CORES = 0.2;
/** Other programs of a busy machine must not take what a group may use. */
const WEIGHT = 20;
/** Connections of all clients together. */
const CONNECTIONS = 64;
const CONNECTED_MS = 60_000;
/** For each process: before that, its code is not compiled. */
const WARM_REQUESTS = 4_000;
const WARM_S = 5;
const FORWARDED_ROUNDS = 1_000;

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '10' },
    repeats: { type: 'string', default: '3' },
    workers: { type: 'string', default: '1,2,4' },
    out: { type: 'string', default: join(ROOT, 'bench/results/workers.json') },
  },
});
const [seconds, repeats] = [Number(values.seconds), Number(values.repeats)];

interface Workers {
  targets: Target[];
  /** Holds each gateway process to a fifth of a core from now on. Returns how much of that they have used since. */
  hold(): () => number;
  stop(): Promise<void>;
}

/** @param named the first processes to which agents connect; the others forward all requests */
async function start(count: number, named = count): Promise<Workers> {
  const processes = await GatewayProcesses.start(0);
  for (let n = 0; n < count; n++) await processes.add(n < named);
  const { gateways } = processes;
  const [first] = gateways;
  if (first === undefined) throw new Error('no process was started');
  const engine = await startEngine();
  const token = await first.createJoinToken();
  const agents: Managed[] = [];
  for (let n = 0; n < AGENTS; n++)
    agents.push(await startAgent({ gateways: [gateways[n % named]?.url ?? ''], token, engineUrl: engine.url }));
  for (const gateway of gateways) await gateway.serving(AGENTS, CONNECTED_MS, MODEL);
  const key = await first.createKey('bench', { limits: { requests_per_minute: 10_000_000 } });
  const groups: SlowGroup[] = [];
  return {
    targets: gateways.map(({ url }) => ({ url, key })),
    hold: () => {
      for (const [n, gateway] of gateways.entries()) {
        const group = SlowGroup.make({ label: `-${n}`, cores: CORES, weight: WEIGHT });
        groups.push(group);
        group.enter(gateway.process.pid);
      }
      const startedAt = performance.now();
      return () => {
        const usedS = groups.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0);
        return usedS / ((count * CORES * (performance.now() - startedAt)) / 1_000);
      };
    },
    stop: async () => {
      for (const group of groups) group.remove();
      await Promise.all([...agents, engine.process].map((one) => one.stop()));
      await Promise.all(gateways.map((one) => one.stop()));
      await processes.server.stop();
    },
  };
}

interface Load {
  perSecond: number;
  p99Ms: number;
}

interface Loads {
  rounds: readonly Load[];
  /** Part of the quotas that was used: below 1, something else was the limit. */
  used: number;
}

/** Requests per second of all processes together, and the worst p99 of one of them. */
async function load(targets: readonly Target[], s: number): Promise<Load> {
  const each = await Promise.all(targets.map((target) => wrk(target, CONNECTIONS / targets.length, s)));
  return {
    perSecond: each.reduce((sum, { perSecond }) => sum + perSecond, 0),
    p99Ms: Math.max(...each.map(({ p99Ms }) => p99Ms)),
  };
}

interface Measured {
  /** The row's name for one, and for several. */
  names: readonly [string, string];
  what: string;
  /** Requests per second, as a multiple of one. */
  least: Readonly<Record<number, number>>;
}

function rowsOf(
  count: number,
  { rounds, used }: Loads,
  alone: number,
  { names, what, least: limits }: Measured,
): Row[] {
  const { median: value, least, most } = repeated(rounds.map(({ perSecond }) => perSecond));
  const at = `${count} ${names[count === 1 ? 0 : 1]}`;
  const rows: Row[] = [
    { what: `requests per second${what}`, at, value, unit: '/s', spread: [least, most] },
    { what: `p99${what}`, at, value: median(rounds.map(({ p99Ms }) => p99Ms)), unit: 'ms' },
    { what: `part of the quota used${what}`, at, value: used * 100, unit: '%' },
  ];
  if (count === 1) return rows;
  const ratio = { what: `multiple of one${what}`, at, value: value / alone, unit: '×' };
  const required = limits[count];
  return [...rows, required === undefined ? ratio : judged(ratio, { least: required })];
}

/** Measures each number of processes. `one`: starts them, measures and ends them. */
async function scaling(counts: readonly number[], measured: Measured, one: (count: number) => Promise<Loads>) {
  const all: Row[] = [];
  let alone = Number.NaN;
  for (const count of counts) {
    const loads = await one(count);
    if (count === 1) alone = median(loads.rounds.map(({ perSecond }) => perSecond));
    const rows = rowsOf(count, loads, alone, measured);
    all.push(...rows);
    console.log(table(rows));
  }
  return all;
}

async function loads(targets: readonly Target[]): Promise<Load[]> {
  const rounds: Load[] = [];
  for (let n = 0; n < repeats; n++) rounds.push(await load(targets, seconds));
  return rounds;
}

async function gateways(count: number): Promise<Loads> {
  const workers = await start(count);
  await Promise.all(workers.targets.map((target) => warm(target, WARM_REQUESTS)));
  const used = workers.hold();
  const rounds = await loads(workers.targets);
  const measured = { rounds, used: used() };
  await workers.stop();
  return measured;
}

/** The original's head with as many fifths of a core, which is one process. */
async function original(count: number): Promise<Loads> {
  const engine = await startEngine();
  const { target, head, worker } = await startOriginal(engine.url, { GOMAXPROCS: String(count) });
  await load([target], WARM_S);
  const group = SlowGroup.make({ label: '-go', cores: count * CORES, weight: WEIGHT });
  group.enter(head.pid);
  const startedAt = performance.now();
  const rounds = await loads([target]);
  const used = group.cpuSeconds / ((count * CORES * (performance.now() - startedAt)) / 1_000);
  group.remove();
  await Promise.all([head, worker, engine.process].map((one) => one.stop()));
  return { rounds, used };
}

/** A request to the process with the agent's socket, and one to a process that forwards it, alternately. */
async function forwarding(): Promise<Row> {
  const workers = await start(2, 1);
  const clients = workers.targets.map((target) => ({ client: new Client(target), bytes: request(target, 'unary') }));
  const times: number[][] = [[], []];
  for (const { client } of clients) await client.open();
  for (let round = -FORWARDED_ROUNDS / 4; round < FORWARDED_ROUNDS; round++)
    for (const [at, { client, bytes }] of clients.entries()) {
      const { status, endMs } = await client.ask(bytes);
      if (status !== 200) throw new Error(`a process answers ${status}`);
      if (round >= 0) times[at]?.push(endMs);
    }
  for (const { client } of clients) client.close();
  await workers.stop();
  const [local = Number.NaN, forwarded = Number.NaN] = times.map((all) => quantile(all, 0.5));
  const row = { what: 'added to the median by forwarding', at: 'one request at a time', direct: local };
  return judged({ ...row, gateway: forwarded, value: forwarded - local, unit: 'ms' }, { most: FORWARDED_MOST_MS });
}

async function main(): Promise<number> {
  const counts = values.workers.split(',').map(Number);
  // What this process starts begins in its group.
  const rest = SlowGroup.make({ label: '-rest', cores: Number.POSITIVE_INFINITY, weight: WEIGHT });
  atEnd(() => rest.remove());
  rest.enter(process.pid);
  const measuredOn = watchMachine();
  const rows = await scaling(counts, { names: ['process', 'processes'], what: '', least: LEAST }, gateways);
  rows.push(await forwarding());
  if (process.env.OTELA_GO) {
    const names = ['fifth of a core', 'fifths of a core'] as const;
    rows.push(...(await scaling(counts, { names, what: ', the original in Go', least: {} }, original)));
  }
  return publish(measuredOn(), rows, values.out);
}

await run(main);
