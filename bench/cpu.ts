/**
 * `node bench/cpu.ts [ROUNDS]`: the gateway's processor time per request, alternately with and without its log line.
 * Sends small non-streaming requests on 16 connections, and divides the gateway's processor seconds by the responses of
 * each round.
 */
import { endAll } from '../test/support/processes.ts';
import { type BenchCluster, openBenchCluster, warm } from './bench-cluster.ts';
import { ranFor } from './ran-for.ts';
import { wrk } from './sections/throughput.ts';
import { repeated } from './stats.ts';

const CONNECTIONS = 16;
const SECONDS = 4;
const NS_PER_US = 1_000;
const rounds = Number(process.argv[2] ?? 3);

async function round(cluster: BenchCluster) {
  const { pid } = cluster.gateway.process;
  const before = ranFor(pid);
  const { perSecond } = await wrk(cluster.through, CONNECTIONS, SECONDS);
  return { gateway: (ranFor(pid) - before) / NS_PER_US / (perSecond * SECONDS), perSecond };
}

const WAYS = ['off', 'all'] as const;
const houses = await Promise.all(WAYS.map((way) => openBenchCluster(undefined, { env: { REQUEST_LOG: way } })));
for (const { through } of houses) await warm(through, 2_000);
const results = WAYS.map((): Awaited<ReturnType<typeof round>>[] => []);
for (let n = 0; n < rounds; n++) {
  for (const [at, cluster] of houses.entries()) results[at]?.push(await round(cluster));
}
for (const [at, way] of WAYS.entries()) {
  const of = (name: 'gateway' | 'perSecond') => {
    const { median, least, most } = repeated((results[at] ?? []).map((result) => result[name]));
    return `${median.toFixed(0)} (${least.toFixed(0)} … ${most.toFixed(0)})`;
  };
  console.log(`log ${way}: ${of('gateway')} µs in the gateway, ${of('perSecond')} requests/s`);
}
await endAll();
