/**
 * `node bench/accounts.ts`: the cost of a key's lists and limits on the warm path. Keys alternate, request by request,
 * on one connection.
 */
import { z } from 'zod';
import { endAll } from '../test/support/processes.ts';
import { openBenchCluster, request, warm } from './bench-cluster.ts';
import { Client } from './client.ts';
import { quantile } from './stats.ts';

const ROUNDS = 3_000;
const LIMITS_MS = { none: 0, lists: 0.05, limits: 0.25 };

const cluster = await openBenchCluster();
const make = async (body: object) => {
  const made = z
    .object({ key: z.string() })
    .parse(await cluster.gateway.admin('POST', 'keys', { name: 'bench', ...body }));
  return request({ url: cluster.gateway.url, key: made.key }, 'unary');
};
const sides = {
  none: await make({}),
  lists: await make({ models: ['*'], trusted_providers: ['lab'], tiers: ['stable', 'volatile'] }),
  limits: await make({ limits: { requests_per_minute: 1_000_000, tokens_per_minute: 1_000_000_000 } }),
};
const times = { none: [] as number[], lists: [] as number[], limits: [] as number[] };
await warm(cluster.through, 500);
const client = new Client(cluster.through);
await client.open();
for (let round = -500; round < ROUNDS; round++) {
  for (const name of ['none', 'lists', 'limits'] as const) {
    const { status, endMs } = await client.ask(sides[name]);
    if (status !== 200) throw new Error(`${name}: ${status}`);
    if (round >= 0) times[name].push(endMs);
  }
}
client.close();
for (const name of ['none', 'lists', 'limits'] as const) {
  const [p50, p95] = [quantile(times[name], 0.5), quantile(times[name], 0.95)];
  const added = p50 - quantile(times.none, 0.5);
  console.log(
    `${name}: p50 ${p50.toFixed(3)} ms, p95 ${p95.toFixed(3)} ms, added p50 ${added.toFixed(3)} ms (allowed ${LIMITS_MS[name]})`,
  );
}
await endAll();
