/** A runner of batches while a gateway is unreachable; the gateway is a socket that ends each connection. */
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { BatchRunner } from '../../../agent/batch/batch-runner.ts';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { labTicket } from '../support/fake-admission.ts';

function runnerAt({ port }: AddressInfo) {
  const key = createSessionKey();
  const lines: string[] = [];
  const runner = new BatchRunner({
    gateways: () => [new URL(`http://127.0.0.1:${port}`)],
    proxy: () => undefined,
    credentials: () => ({ ticket: labTicket(key.publicKey), key }),
    engine: () => ({ origin: 'http://127.0.0.1:1', pathPrefix: '' }),
    models: () => ['m'],
    reading: () => ({ running: 0, waiting: 0, firstTokenMs: 0 }),
    computedAt: () => undefined,
    interactive: () => 0,
    lines: () => ({ slots: 4, priority: undefined }),
    log: (line) => lines.push(line),
  });
  return { runner, lines };
}

it('a gateway that is away is asked half a second later, then after twice as long each time, and told of once', async () => {
  const asked: number[] = [];
  const server = createServer((socket) => {
    asked.push(performance.now());
    socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { runner, lines } = runnerAt(server.address() as AddressInfo);
  onTestFinished(async () => {
    await runner.close();
    server.close();
  });
  await expect.poll(() => asked.length).toBeGreaterThanOrEqual(4);
  const [first = 0, , , fourth = 0] = asked;
  // At least three quarters of 500, 1,000 and 2,000.
  expect(fourth - first).toBeGreaterThan(2_600);
  expect(lines.length).toBeLessThanOrEqual(1);
});

it('a gateway that leases and has no chunk to give is asked ever more seldom, and told of at once', async () => {
  const asked: number[] = [];
  const server = createHttpServer((request, response) => {
    request.resume();
    if (request.url === '/agent/batch/lease') {
      asked.push(performance.now());
      const demand = {
        batch: 'b',
        chunk: 0,
        epoch: 1,
        bytes: 10,
        prefix: 0,
        open: [0],
        endpoint: '/v1/chat/completions',
      };
      return void response.end(JSON.stringify({ ...demand, leaseMs: 60_000 }));
    }
    response.statusCode = request.url === '/agent/batch/release' ? 204 : 503;
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { runner, lines } = runnerAt(server.address() as AddressInfo);
  onTestFinished(async () => {
    await runner.close();
    server.close();
  });
  await expect.poll(() => asked.length).toBeGreaterThanOrEqual(4);
  const [first = 0, , , fourth = 0] = asked;
  expect(fourth - first).toBeGreaterThan(2_600);
  expect(lines).toEqual([expect.stringMatching(/^batches: .* answers 503/)]);
});
