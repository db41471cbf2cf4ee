/** Unary requests of every length and duration: asked once, answered at once, counted once. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { chatBody } from '../support/house.ts';
import { endAll } from '../support/processes.ts';
import { type Bench, openWorkshop, type Workshop } from '../support/tunnel/workshop.ts';

let shop: Workshop;
let bench: Bench;
beforeAll(async () => {
  shop = await openWorkshop();
  bench = await shop.addNode();
});
afterAll(endAll);

it('a large answer does not wait for a small one’s patience', async () => {
  const took: Record<number, number> = {};
  for (const bytes of [1_000, 100_000, 300_000, 1_048_576, 1_100_000, 3_000_000]) {
    const times: number[] = [];
    for (let round = 0; round < 3; round++) {
      const startedAt = performance.now();
      const body = { model: 'stand-in/model-1', input: 'x', voice: 'x', stand_in: { bytes } };
      const response = await shop.ask('/v1/audio/speech', body);
      expect((await response.arrayBuffer()).byteLength).toBe(bytes);
      times.push(performance.now() - startedAt);
    }
    took[bytes] = Math.round(Math.min(...times));
  }
  console.log('ms by bytes', took);
  for (const ms of Object.values(took)) expect(ms).toBeLessThan(350);
});

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
