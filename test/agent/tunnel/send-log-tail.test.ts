/** The log tail that an agent sends to its gateways before it ends, over real sockets; the test plays the gateways. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { sendLogTail } from '../../../agent/tunnel/send-log-tail.ts';
import { LOG_TAIL_MAX_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { labTicket } from '../support/fake-admission.ts';

/** Answers with `status`, or never. */
async function gateway(status: number | undefined) {
  const bodies: Buffer[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    bodies.push(Buffer.concat(chunks));
    if (status !== undefined) response.writeHead(status).end(status < 300 ? '' : '{"error":{"message":"full"}}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), bodies };
}

it('each gateway gets the end of it, also beside one that never answers and one that refuses', async () => {
  const [good, silent, full, other] = [
    await gateway(204),
    await gateway(undefined),
    await gateway(507),
    await gateway(204),
  ];
  const lines: string[] = [];
  const key = createSessionKey();
  const tail = Buffer.concat([Buffer.alloc(10, 'a'), Buffer.alloc(LOG_TAIL_MAX_BYTES, 'b')]);
  const given = new AbortController();
  const left = sendLogTail({
    gateways: [silent.url, good.url, full.url, other.url],
    ticket: labTicket(key.publicKey),
    key,
    tail,
    env: {},
    signal: given.signal,
    log: (line) => lines.push(line),
  });
  await expect.poll(() => [good, silent, full, other].every(({ bodies }) => bodies.length === 1)).toBe(true);
  await expect.poll(() => lines.join()).toContain(`${full.url.host} rejected this node's log: 507 full`);
  given.abort();
  await left;
  expect(good.bodies[0]?.equals(Buffer.alloc(LOG_TAIL_MAX_BYTES, 'b'))).toBe(true);
  expect(lines.at(-1)).toContain(`is stored at ${good.url.host}, ${other.url.host}`);
});
