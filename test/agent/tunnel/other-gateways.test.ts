/** What gateways answer outside their tunnels, over real sockets; the test plays the gateways. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { pollGateways } from '../../../agent/tunnel/other-gateways.ts';
import { MEMBERSHIP_DEFAULTS } from '../../../shared/gossip/index.ts';
import { labTicket } from '../support/fake-admission.ts';

async function asked(answer: unknown, status = 200) {
  const server = createServer((_, response) => response.writeHead(status).end(JSON.stringify(answer)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const gateway = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  return pollGateways({ gateway, ticket: labTicket(new Uint8Array(32).fill(1)), proxy: undefined, env: {} });
}

test('the institution’s own gateway names the others, and the times of the mesh', async () => {
  const data = [{ url: 'http://gw2.example', own: true }, { url: 'http://older.example' }];
  const word = await asked({ data, membership: { probe_ms: 5_000, grace_ms: 1 } });
  expect(word?.gateways).toEqual([
    { url: new URL('http://gw2.example/'), own: true },
    { url: new URL('http://older.example/'), own: false },
  ]);
  expect(word?.membership).toMatchObject({ probe_ms: 5_000, retention_ms: MEMBERSHIP_DEFAULTS.retention_ms });
});

test('a gateway of another version, or one that lies, sets no times beyond the bounds', async () => {
  for (const membership of [undefined, null, 'fast', { probe_ms: 1 }, { probe_ms: 10 ** 9 }, { retention_ms: 1 }])
    expect((await asked({ data: [], membership }))?.membership).toMatchObject({ probe_ms: 1_000 });
});

test('a peer’s gateway has no say, and neither has one that refuses or talks nonsense', async () => {
  expect(await asked({ peer: true, data: [{ url: 'http://mine.example' }] })).toBeUndefined();
  expect(await asked({ data: [] }, 403)).toBeUndefined();
  expect(await asked('nonsense')).toBeUndefined();
  expect(await asked({ data: Array(65).fill({ url: 'http://a.example' }) })).toBeUndefined();
});
