/** More lines than are needed wait here for a long time; the test plays the gateway and the clock. */
import { afterEach, expect, it, vi } from 'vitest';
import { BatchRunner } from '../../../agent/batch/batch-runner.ts';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { labTicket } from '../support/fake-admission.ts';

const LINES = 100;
const LINE = JSON.stringify({ custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model: 'm' } });
const CHUNK = Buffer.from(`${LINE}\n`.repeat(LINES));

vi.mock('../../../agent/batch/batch-gateway-client.ts', () => ({
  BatchGatewayClient: class {
    lease = async () => ({
      batch: 'b',
      chunk: 0,
      epoch: 1,
      bytes: CHUNK.length,
      prefix: 0,
      open: Array.from({ length: LINES }, (_, n) => n),
      endpoint: '/v1/chat/completions',
      leaseMs: 60_000,
    });
    chunk = async () => CHUNK;
    renew = async () => ({ leased: true });
    release = async () => {};
    close = async () => {};
  },
}));

afterEach(() => void vi.useRealTimers());

it('an engine that is away for forty minutes while lines wait costs nothing: the next drain ends well', async () => {
  vi.useFakeTimers();
  const key = createSessionKey();
  let engine: { origin: string; pathPrefix: string } | undefined = { origin: 'http://127.0.0.1:1', pathPrefix: '' };
  const runner = new BatchRunner({
    gateways: () => [1, 2, 3].map((n) => new URL(`http://gateway-${n}/`)),
    proxy: () => undefined,
    credentials: () => ({ ticket: labTicket(key.publicKey), key }),
    engine: () => engine,
    models: () => ['m'],
    reading: () => ({ running: 0, waiting: 0, firstTokenMs: 0 }),
    computedAt: () => undefined,
    // Requests take all slots, so no line starts.
    interactive: () => 4,
    lines: () => ({ slots: 2, priority: undefined }),
    log: () => {},
  });
  await vi.advanceTimersByTimeAsync(10);
  engine = undefined;
  await vi.advanceTimersByTimeAsync(40 * 60_000);
  await expect(runner.drain(AbortSignal.abort())).resolves.toBeUndefined();
  await runner.close();
});
