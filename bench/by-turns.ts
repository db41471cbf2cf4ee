/**
 * `node bench/by-turns.ts BEFORE AFTER [CONNECTIONS] [ROUNDS]`: compares two checkouts, each with its `node_modules`.
 * Small non-streaming requests go to them alternately, for a second each. Prints requests per second, and processor
 * time per request of each process. Other work on the machine affects both, so their ratio is reliable even if neither
 * figure is.
 */
import { join, resolve } from 'node:path';
import { ranFor } from './ran-for.ts';
import { median } from './stats.ts';

const WARM_REQUESTS = 2_000;
const WARM_S = 4;
const NS_PER_US = 1_000;

interface Turn {
  perSecond: number;
  /** µs per request. */
  gateway: number;
  agent: number;
  sum: number;
}

async function openSide(directory: string) {
  const part = (path: string) => import(join(resolve(directory), path));
  const { openBenchCluster: openHouse, warm }: typeof import('./bench-cluster.ts') =
    await part('bench/bench-cluster.ts');
  const { wrk }: typeof import('./sections/throughput.ts') = await part('bench/sections/throughput.ts');
  const { endAll }: typeof import('../test/support/processes.ts') = await part('test/support/processes.ts');
  const cluster = await openHouse();
  await warm(cluster.through, WARM_REQUESTS);
  const pids = [cluster.gateway.process.pid, cluster.agent.pid];
  const turns: Turn[] = [];
  const turn = async (connections: number, seconds: number) => {
    const before = pids.map(ranFor);
    const { perSecond } = await wrk(cluster.through, connections, seconds);
    const [gateway = 0, agent = 0] = pids.map(
      (pid, at) => (ranFor(pid) - (before[at] ?? 0)) / NS_PER_US / (perSecond * seconds),
    );
    return { perSecond, gateway, agent, sum: gateway + agent };
  };
  return { directory, turn, turns, endAll };
}

const [before, after, connections = '64', rounds = '15'] = process.argv.slice(2);
if (before === undefined || after === undefined) throw new Error('usage: node bench/by-turns.ts BEFORE AFTER');
const sides = [await openSide(before), await openSide(after)];
for (const { turn } of sides) await turn(Number(connections), WARM_S);
for (let n = 0; n < Number(rounds); n++) {
  for (const { turn, turns } of n % 2 === 0 ? sides : sides.toReversed())
    turns.push(await turn(Number(connections), 1));
}
const NAMES = ['perSecond', 'gateway', 'agent', 'sum'] as const;
const medians = sides.map(({ turns }) => NAMES.map((name) => median(turns.map((turn) => turn[name]))));
for (const [at, { directory }] of sides.entries()) {
  const [perSecond = 0, ...us] = medians[at] ?? [];
  const told = us.map((value, n) => `${NAMES[n + 1]} ${value.toFixed(0)}`).join(', ');
  console.log(
    `${directory}: ${perSecond.toFixed(0)} requests/s at ${connections} connections; µs per request: ${told}`,
  );
}
const ratios = NAMES.map((name, at) => `${name} ${((medians[1]?.[at] ?? 0) / (medians[0]?.[at] ?? 1)).toFixed(2)}`);
console.log(`after / before: ${ratios.join(', ')}`);
for (const { endAll } of sides) await endAll();
