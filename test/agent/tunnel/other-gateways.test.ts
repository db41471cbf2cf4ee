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

test('an ingress is told the shares of a plan; shares that are no shares are none, and change nothing else', async () => {
  const good = { holds_ms: 60_000, models: { m: { shares: { ch: 0.7, fi: 0.3 }, spill: { ch: { fi: 1 } } } } };
  expect((await asked({ data: [], shares: good }))?.shares).toEqual(good);
  const models = (shares: unknown) => ({ holds_ms: 1, models: { m: { shares } } });
  const many = Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`r${n}`, 0]));
  for (const shares of [
    'all',
    models({ ch: 2 }),
    models({ ch: -1 }),
    models({ ch: 'all' }),
    models(many),
    { ...good, holds_ms: 10 ** 12 },
    { ...good, models: 7 },
  ]) {
    const word = await asked({ data: [{ url: 'http://gw2.example', own: true }], shares });
    expect(word?.shares).toBeUndefined();
    expect(word?.gateways).toHaveLength(1);
  }
});

test('what peer institutions may use is read, and what means nothing sets no limit', async () => {
  const peers = { psi: { share: 0.5, projects: { proj_1: 'tokens_per_month' } }, eth: { over: 'requests_per_month' } };
  expect((await asked({ data: [], peers }))?.peers).toEqual(peers);
  const many = Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`p${n}`, {}]));
  for (const wrong of [undefined, 7, { psi: { share: 2 } }, { psi: { over: 'all' } }, { 'a b': {} }, many])
    expect((await asked({ data: [], peers: wrong }))?.peers).toEqual({});
});

test('a gateway is of the institution that the own gateway names, and an own gateway of none', async () => {
  const named = (peer: unknown, own = false) => ({ url: 'http://gw2.example', own, peer });
  const word = await asked({ data: [named('psi'), named('a b'), named(7), named('psi', true)] });
  expect(word?.gateways.map(({ peer }) => peer)).toEqual(['psi', undefined, undefined, undefined]);
});

test('a peer’s gateway has no say, and neither has one that refuses or talks nonsense', async () => {
  expect(await asked({ peer: true, data: [{ url: 'http://mine.example' }] })).toBeUndefined();
  expect(await asked({ data: [] }, 403)).toBeUndefined();
  expect(await asked('nonsense')).toBeUndefined();
  expect(await asked({ data: Array(65).fill({ url: 'http://a.example' }) })).toBeUndefined();
});
