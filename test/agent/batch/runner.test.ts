/** What a runner of batches does while a gateway cannot be asked; the gateway is a socket that ends each connection. */
import { type AddressInfo, createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { BatchRunner } from '../../../agent/batch/runner.ts';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { labTicket } from '../support/fake-admission.ts';

it('a gateway that is away is asked half a second later, then after twice as long each time, and told of once', async () => {
  const asked: number[] = [];
  const server = createServer((socket) => {
    asked.push(performance.now());
    socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const key = createSessionKey();
  const lines: string[] = [];
  const runner = new BatchRunner({
    gateways: () => [new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)],
    proxy: () => undefined,
    speaker: () => ({ ticket: labTicket(key.publicKey), key }),
    engine: () => ({ origin: 'http://127.0.0.1:1', pathPrefix: '' }),
    models: () => ['m'],
    reading: () => ({ running: 0, waiting: 0, firstTokenMs: 0 }),
    interactive: () => 0,
    lines: () => ({ slots: 4, priority: undefined }),
    log: (line) => lines.push(line),
  });
  onTestFinished(async () => {
    await runner.close();
    server.close();
  });
  await expect.poll(() => asked.length, { timeout: 60_000 }).toBeGreaterThanOrEqual(4);
  const [first = 0, , , fourth = 0] = asked;
  expect(fourth - first).toBeGreaterThan(3_400);
  expect(lines.length).toBeLessThanOrEqual(1);
});
