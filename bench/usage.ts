/**
 * `node bench/usage.ts [SECONDS] [RATE]`: 64 connections send requests as fast as they are answered, or RATE per second
 * in total; then every response must be in the totals, exactly once. `node bench/usage.ts 600 500` runs ten minutes
 * with 500 records a second.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { endAll } from '../test/support/processes.ts';
import { openBenchCluster, request, resident, warm } from './bench-cluster.ts';
import { Client } from './client.ts';
import { quantile } from './stats.ts';

const CONNECTIONS = 64;
const SETTLE_MS = 60_000;
const seconds = Number(process.argv[2] ?? 20);
const rate = process.argv[3] === undefined ? Number.POSITIVE_INFINITY : Number(process.argv[3]);

const cluster = await openBenchCluster();
await warm(cluster.through, 200);
const made = z
  .object({ id: z.string(), key: z.string() })
  .parse(await cluster.gateway.admin('POST', 'keys', { name: 'b' }));
const bytes = request({ url: cluster.gateway.url, key: made.key }, 'unary');
const begunAt = performance.now();
const until = begunAt + seconds * 1000;
let begun = 0;
let answered = 0;
const times: number[] = [];
await Promise.all(
  Array.from({ length: CONNECTIONS }, async () => {
    const client = new Client(cluster.through);
    await client.open();
    for (;;) {
      // The next free connection takes the next turn, so a late response does not delay the start of other requests.
      const turn = begunAt + (begun++ / rate) * 1000;
      if (Math.max(turn, performance.now()) >= until) break;
      const wait = turn - performance.now();
      if (wait > 1) await delay(wait);
      const { status, endMs } = await client.ask(bytes);
      if (status !== 200) throw new Error(`status ${status}`);
      answered++;
      times.push(endMs);
    }
    client.close();
  }),
);
console.log(`${answered} answers in ${seconds} s: ${Math.round(answered / seconds)} /s`);
console.log(`p50 ${quantile(times, 0.5).toFixed(2)} ms, p99 ${quantile(times, 0.99).toFixed(2)} ms`);
const memory = resident(cluster);
console.log(`gateway ${Math.round(memory.gateway)} MiB, agent ${Math.round(memory.agent)} MiB`);
const totals = z.object({ data: z.array(z.object({ requests: z.number(), estimated: z.number() })) });
const startedAt = performance.now();
for (let counted = 0; counted !== answered; ) {
  if (performance.now() - startedAt > SETTLE_MS) throw new Error(`${counted} of ${answered} are in the totals`);
  await delay(250);
  const { data } = totals.parse(await cluster.gateway.admin('GET', `usage?key=${made.id}&group_by=key`));
  counted = data[0]?.requests ?? 0;
}
console.log(`all of them in the totals ${((performance.now() - startedAt) / 1000).toFixed(1)} s later, none twice`);
await endAll();
