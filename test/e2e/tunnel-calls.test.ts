/** Non-streaming requests of every duration: each is sent to an engine once. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endAll } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';
import { type Bench, openTunnelBench, type TunnelBench } from '../support/tunnel/tunnel-bench.ts';

let shop: TunnelBench;
let bench: Bench;
beforeAll(async () => {
  shop = await openTunnelBench();
  bench = await shop.addNode();
});
afterAll(endAll);

it('answers that take about as long as a call waits are computed once', async () => {
  const before = bench.engine.requests.length;
  const delays = Array.from({ length: 60 }, (_, n) => 100 + n * 10);
  const statuses = await Promise.all(
    delays.map(async (delayMs) => {
      const response = await shop.ask('/v1/chat/completions', chatBody({ delayMs, tokens: 3 }));
      await response.arrayBuffer();
      return response.status;
    }),
  );
  expect(new Set(statuses)).toEqual(new Set([200]));
  expect(bench.engine.requests.length - before).toBe(delays.length);
  expect(bench.engine.requests.filter(({ abortedAt }) => abortedAt !== undefined)).toEqual([]);
});
