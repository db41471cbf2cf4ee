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

/** So long a call waits for a small answer (gateway/tunnel/attempts.ts): what waited for that never takes less, in no round. */
const CALL_MS = 200;
/** A busy machine makes any one round slow. */
const ROUNDS_MAX = 40;

it('a large answer does not wait for a small one’s patience', async () => {
  const took: Record<number, number> = {};
  for (const bytes of [1_000, 100_000, 300_000, 1_048_576, 1_100_000, 1_500_000]) {
    let least = Number.POSITIVE_INFINITY;
    for (let round = 0; round < ROUNDS_MAX && least >= CALL_MS; round++) {
      const startedAt = performance.now();
      const body = { model: 'stand-in/model-1', input: 'x', voice: 'x', stand_in: { bytes } };
      const response = await shop.ask('/v1/audio/speech', body);
      expect((await response.arrayBuffer()).byteLength).toBe(bytes);
      least = Math.min(least, performance.now() - startedAt);
    }
    took[bytes] = Math.round(least);
  }
  for (const [bytes, ms] of Object.entries(took)) expect(ms, `${bytes} bytes`).toBeLessThan(CALL_MS);
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
