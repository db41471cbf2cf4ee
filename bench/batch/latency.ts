import { Pool } from 'undici';
import { chat, PATH } from '../bench-cluster.ts';
import { arrivals, quantile } from '../stats.ts';
import type { Options, Row } from './main.ts';
import { type BatchCluster, begin, linesOf, openBatchCluster, upload, watch } from './setup.ts';

const SLOTS = 16;
const BENCH = `paced ${SLOTS} 50`;
/** Interactive requests per second: a tenth of the engine's capacity. The batch would use all of that capacity. */
const PER_SECOND = 30;
const REQUESTS = 300;

/** Measures the time to the first byte of requests to an engine that a batch keeps full, compared with no batch. */
export async function latency({ lines, rounds }: Options): Promise<Row[]> {
  const cluster = await openBatchCluster(1, ['--max-running', String(SLOTS)]);
  const file = await upload(cluster.client, linesOf(lines, BENCH));
  const [calm, beside]: [number[], number[]] = [[], []];
  let refused = 0;
  for (let round = 0; round < rounds; round++) {
    const alone = await measured(cluster);
    const id = await begin(cluster.client, file);
    await watch(cluster.client, id, (batch) => (batch.request_counts?.completed ?? 0) >= 500);
    const busy = await measured(cluster);
    await cluster.client.batches.cancel(id);
    await watch(cluster.client, id, ({ status }) => status === 'cancelled');
    calm.push(...alone.times);
    beside.push(...busy.times);
    refused += busy.refused;
  }
  const [without, during] = [quantile(calm, 0.95), quantile(beside, 0.95)];
  return [
    {
      what: `${PER_SECOND} requests/s at an engine of ${SLOTS} slots that a batch keeps full: p95 to the first byte`,
      value: `${during.toFixed(0)} ms, ${without.toFixed(0)} ms without: ${(during / without).toFixed(2)}`,
      required: '≤ 1.2',
      holds: during / without <= 1.2 && refused === 0,
    },
    { what: 'requests that were not answered', value: String(refused) },
  ];
}

async function measured({ gateway, key }: BatchCluster): Promise<{ times: number[]; refused: number }> {
  const pool = new Pool(gateway.url, { connections: 64, pipelining: 1 });
  const body = JSON.stringify(chat(BENCH));
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` };
  const times: number[] = [];
  let refused = 0;
  let seed = 1;
  const random = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  const startedAt = performance.now();
  await Promise.all(
    arrivals(random, PER_SECOND, REQUESTS).map(async (at) => {
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, at - (performance.now() - startedAt))));
      const sentAt = performance.now();
      const answer = await pool.request({ method: 'POST', path: PATH, headers, body });
      times.push(performance.now() - sentAt);
      if (answer.statusCode !== 200) refused += 1;
      await answer.body.dump();
    }),
  );
  await pool.destroy();
  return { times, refused };
}
