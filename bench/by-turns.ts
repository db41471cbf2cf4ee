/**
 * `node bench/by-turns.ts BEFORE AFTER [CONNECTIONS] [ROUNDS]`: compares two checkouts, each with its `node_modules`.
 * Small non-streaming requests go to them alternately, for a second each. With `--rate N`, N requests per second go to
 * each of them in the same seconds, and their median and p99 latency is printed, too. `--env NAME=VALUE` is for the
 * gateway and the agent of AFTER. Prints processor time and context switches per request of each process, and the memory
 * of each process five seconds after the last turn. Other work on the machine affects both checkouts, so their ratio is
 * reliable even if neither figure is.
 */
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import type { openBenchCluster } from './bench-cluster.ts';
import { request, resident } from './bench-cluster.ts';
import { ranFor, switchesOf } from './ran-for.ts';
import { interleaved, Pool, type Side } from './sections/latency.ts';
import { wrk } from './sections/throughput.ts';
import { median, quantile } from './stats.ts';

const WARM_REQUESTS = 2_000;
const WARM_S = 4;
const PACED_S = 8;
const NS_PER_US = 1_000;
const SEED = 1;
/** Wait until memory that only the load needed is freed. */
const REST_MS = 5_000;

const NAMES = [
  'requests/s',
  'gateway µs',
  'agent µs',
  'sum µs',
  'gateway switches',
  'agent switches',
  'median ms',
  'p99 ms',
] as const;
type Figures = Record<(typeof NAMES)[number], number>;
type Cluster = Awaited<ReturnType<typeof openBenchCluster>>;

class Checkout {
  readonly directory: string;
  readonly endAll: () => Promise<void>;
  readonly cluster: Cluster;
  readonly turns: Figures[] = [];

  private constructor(directory: string, cluster: Cluster, endAll: () => Promise<void>) {
    this.directory = directory;
    this.cluster = cluster;
    this.endAll = endAll;
  }

  static async open(directory: string, env: Record<string, string>): Promise<Checkout> {
    const part = (path: string) => import(join(resolve(directory), path));
    const { openBenchCluster, warm }: typeof import('./bench-cluster.ts') = await part('bench/bench-cluster.ts');
    const { endAll }: typeof import('../test/support/processes.ts') = await part('test/support/processes.ts');
    const cluster = await openBenchCluster(undefined, { env });
    await warm(cluster.through, WARM_REQUESTS);
    return new Checkout(directory, cluster, endAll);
  }

  #counters(): number[] {
    const programs = [this.cluster.gateway.process.pid, this.cluster.agent.pid];
    return [...programs.map(ranFor), ...programs.map(switchesOf)];
  }

  /** Begins a turn; returns the function that ends it after `requests` requests in `seconds`. */
  begin(): (requests: number, seconds: number, latency: { median: number; p99: number }) => void {
    const before = this.#counters();
    return (requests, seconds, latency) => {
      const [gateway = 0, agent = 0, ...switches] = this.#counters().map((n, at) => (n - (before[at] ?? 0)) / requests);
      this.turns.push({
        'requests/s': requests / seconds,
        'gateway µs': gateway / NS_PER_US,
        'agent µs': agent / NS_PER_US,
        'sum µs': (gateway + agent) / NS_PER_US,
        'gateway switches': switches[0] ?? 0,
        'agent switches': switches[1] ?? 0,
        'median ms': latency.median,
        'p99 ms': latency.p99,
      });
    };
  }
}

async function alternate(sides: readonly Checkout[], connections: number, rounds: number): Promise<void> {
  for (const { cluster } of sides) await wrk(cluster.through, connections, WARM_S);
  for (let n = 0; n < rounds; n++) {
    for (const side of n % 2 === 0 ? sides : sides.toReversed()) {
      const end = side.begin();
      const { perSecond, p50Ms, p99Ms } = await wrk(side.cluster.through, connections, 1);
      end(perSecond, 1, { median: p50Ms, p99: p99Ms });
    }
  }
}

async function pace(sides: readonly Checkout[], perSecond: number, rounds: number): Promise<void> {
  const pools = sides.map(({ cluster }) => new Pool(cluster.through));
  for (let n = 0; n < rounds; n++) {
    const ends = sides.map((side) => side.begin());
    const round = sides.map(({ cluster }, at): Side => {
      const pool = pools[at] ?? new Pool(cluster.through);
      return { pool, bytes: request(cluster.through, 'unary'), times: [], failed: 0 };
    });
    await interleaved(round, perSecond, perSecond * PACED_S, SEED + n, false);
    for (const [at, end] of ends.entries()) {
      const times = round[at]?.times ?? [];
      end(times.length, PACED_S, { median: median(times), p99: quantile(times, 0.99) });
    }
  }
  for (const pool of pools) pool.close();
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { rate: { type: 'string' }, env: { type: 'string', multiple: true, default: [] } },
});
const [before, after, connections = '64', rounds = '15'] = positionals;
if (before === undefined || after === undefined) throw new Error('usage: node bench/by-turns.ts BEFORE AFTER');
const env = Object.fromEntries(
  values.env.map((text): [string, string] => {
    const at = text.indexOf('=');
    return [text.slice(0, at), text.slice(at + 1)];
  }),
);
const sides = [await Checkout.open(before, {}), await Checkout.open(after, env)];
if (values.rate === undefined) await alternate(sides, Number(connections), Number(rounds));
else await pace(sides, Number(values.rate), Number(rounds));
const medians = sides.map(({ turns }) => NAMES.map((name) => median(turns.map((turn) => turn[name]))));
for (const [at, { directory }] of sides.entries()) {
  const told = NAMES.map((name, n) => `${name} ${(medians[at]?.[n] ?? 0).toPrecision(4)}`);
  console.log(`${directory}: ${told.join(', ')}`);
}
const ratios = NAMES.map((name) => {
  const [first, second] = sides.map(({ turns }) => turns.map((turn) => turn[name]));
  return `${name} ${median((second ?? []).map((value, n) => value / (first?.[n] ?? Number.NaN))).toFixed(2)}`;
});
console.log(`after / before, median of the rounds' ratios: ${ratios.join(', ')}`);
await new Promise((resolve) => setTimeout(resolve, REST_MS));
for (const { directory, cluster } of sides) {
  const { gateway, agent } = resident(cluster);
  console.log(`${directory}: gateway ${gateway.toFixed(0)} MiB, agent ${agent.toFixed(0)} MiB`);
}
for (const { endAll } of sides) await endAll();
