import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { peers } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { workerdCrypto, workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { createIssuer, GatewayIssuer } from '../../../gateway/issuer/issuer.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { signEviction } from '../../../shared/lattice/eviction.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { encodeUpdate } from '../../../shared/lattice/registry-update.ts';
import { decodeTicket } from '../../../shared/lattice/ticket.ts';
import { evictDurableObject, runDurableObjectAlarm } from '../support/durable.ts';
import { admitRequest, seedToken, TestAgent } from './agent.ts';

const registry = () => env.REGISTRY.getByName('registry');

async function shown(session: string): Promise<RegistryEntry | undefined> {
  const delta = await registry().snapshot(null);
  return delta?.entries.find((entry) => entry.session === session);
}

test('a join token and a key are exchanged for a ticket of that key', async () => {
  const { token } = await seedToken({ provider: 'eth', cluster: null });
  const signer = workerdSigner();
  const public_key = toBase64url(signer.publicKey);
  const response = await admitRequest(token, { protocol: 2, public_key, cluster: 'daint' });
  expect(response.status).toBe(200);
  expect(response.headers.get('cache-control')).toBe('no-store');
  const { issuerId } = await registry().ready();
  const body: Record<string, unknown> = await response.json();
  expect(body).toMatchObject({
    provider: 'eth',
    cluster: 'daint',
    issuer: issuerId,
    gateway: expect.stringMatching(/^gw:/),
  });
  expect(body.issuers).toMatchObject([{ name: 'local', id: issuerId }]);
});

test('an answer tells the time, a refusal too: agents compare their clocks by it', async () => {
  const { token } = await seedToken();
  for (const given of [token, undefined]) {
    const answer = await admitRequest(given, { protocol: 2, public_key: 'A'.repeat(43) });
    const off = Date.now() - Date.parse(answer.headers.get('date') ?? '');
    expect([answer.status < 500, Math.abs(off) < 60_000]).toEqual([true, true]);
  }
});

test('a ticket lasts an hour longer than its job', async () => {
  const { token } = await seedToken();
  const ends = new Date(Date.now() + 7_200_000);
  const agent = await TestAgent.join(token, { job_ends_at: ends.toISOString() });
  expect(Math.abs(agent.ticket.expires - ends.getTime() / 1000 - 3600)).toBeLessThan(2);
});

test.each([
  ['no token', undefined, {}, 401],
  ['an unknown token', `otela-join-${'a'.repeat(43)}`, {}, 401],
  ['another protocol', 'good', { protocol: 1 }, 426],
  ['a key of 31 bytes', 'good', { public_key: toBase64url(new Uint8Array(31)) }, 400],
  ['no key', 'good', { public_key: undefined }, 400],
  ['a cluster that is no name', 'good', { cluster: '../x' }, 400],
  ['a foreign cluster', 'good', { cluster: 'daint' }, 403],
  ['a date that is none', 'good', { job_ends_at: 'tomorrow' }, 400],
])('with %s nobody is admitted', async (_, given, more, status) => {
  const { token } = await seedToken();
  const body = { protocol: 2, public_key: toBase64url(workerdSigner().publicKey), ...more };
  expect((await admitRequest(given === 'good' ? token : given, body)).status).toBe(status);
});

test('a record that came up its tunnel is shown as serving, and as suspected when the tunnel is gone', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  expect(await agent.publish()).toEqual({ kind: 'stored' });
  expect(await shown(agent.session)).toMatchObject({
    state: 'SERVING',
    connected: true,
    suspected: false,
    provider: 'lab',
  });
  await registry().closed(agent.session);
  expect(await shown(agent.session)).toMatchObject({ connected: false, suspected: true });
  await agent.publish();
  expect(await shown(agent.session)).toMatchObject({ connected: true, suspected: false });
});

test('a session of a process that can be reached again is shown as connected, without a record', async () => {
  const { token } = await seedToken();
  const [agent, left] = [await TestAgent.join(token), await TestAgent.join(token)];
  for (const one of [agent, left]) await one.publish();
  await left.publish(left.words('LEFT'));
  await registry().closed(agent.session);
  await registry().reopened([agent.session, left.session, 'unknown']);
  expect(await shown(agent.session)).toMatchObject({ connected: true, suspected: false });
  expect(await shown(left.session)).toMatchObject({ state: 'LEFT', connected: false });
});

test('a node that names a model twice is shown with it once', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  const models = ['twice', 'once', 'twice'].map((id) => ({ id, state: 'ready' as const }));
  await agent.publish(agent.words('SERVING', { models }));
  expect((await shown(agent.session))?.models.map(({ id }) => id)).toEqual(['twice', 'once']);
});

test('an older record changes nothing, in any order of arrival', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  const [older, newer] = [agent.words('SERVING', { region: 'a' }), agent.words('DOWN', { region: 'b' })];
  await agent.publish(newer);
  expect(await agent.publish(older)).toEqual({ kind: 'stored' });
  expect(await shown(agent.session)).toMatchObject({ state: 'DOWN', region: 'b' });
});

test('forged, foreign, broken and oversize words are refused and change nothing', async () => {
  const { token } = await seedToken();
  const [agent, other] = await Promise.all([TestAgent.join(token), TestAgent.join(token)]);
  await agent.publish();
  const good = agent.words();
  const forged = good.slice();
  forged[60] = (forged[60] ?? 0) ^ 1;
  const before = (await registry().ready()).sessions;
  for (const words of [forged, good.slice(0, 50), other.words(), new Uint8Array(20_000), new Uint8Array()]) {
    expect((await agent.publish(words)).kind).toBe('refused');
  }
  const forger = new GatewayIssuer(createIssuer(Math.floor(Date.now() / 1000)).gateway);
  const eviction = signEviction({ session: agent.session, reason: 'silent' }, forger.signer, workerdCrypto);
  expect((await agent.publish(encodeUpdate({ kind: 'entry', eviction }))).kind).toBe('refused');
  expect((await registry().ready()).sessions).toBe(before);
  expect(await shown(agent.session)).toMatchObject({ state: 'SERVING', version: 1 });
});

test('what the registry knows outlives its object', async () => {
  const { token } = await seedToken();
  const [agent, left] = await Promise.all([TestAgent.join(token), TestAgent.join(token)]);
  await agent.publish();
  await left.publish();
  await left.publish(left.words('LEFT'));
  await registry().closed(agent.session);
  const { issuerId } = await registry().ready();
  await new Promise((resolve) => setTimeout(resolve, 2_000)); // the storage write happens later
  await evictDurableObject(registry());
  expect((await registry().ready()).issuerId).toBe(issuerId);
  expect(await shown(agent.session)).toMatchObject({ state: 'SERVING', connected: false, suspected: true });
  expect(await shown(left.session)).toMatchObject({ state: 'LEFT', models: [{ id: 'm' }] });
  expect(await agent.publish()).toEqual({ kind: 'stored' });
});

test('a revoked join token ends the sessions that it let in, also those that never said a word', async () => {
  const { id, token } = await seedToken();
  const [speaking, silent] = await Promise.all([TestAgent.join(token), TestAgent.join(token)]);
  const other = await TestAgent.join((await seedToken()).token);
  for (const agent of [speaking, other]) await agent.publish();
  expect(await registry().revokeToken(id, true)).toBe(2);
  expect(await shown(speaking.session)).toMatchObject({ state: 'LEFT', connected: false });
  for (const agent of [speaking, silent]) {
    expect(await agent.publish()).toEqual({ kind: 'over', reason: 'evicted: token-revoked' });
  }
  expect(await shown(other.session)).toMatchObject({ state: 'SERVING', connected: true });
});

test('a session that left does not come back, not with a higher version either', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  await agent.publish();
  await agent.publish(agent.words('LEFT'));
  await agent.publish(agent.words('SERVING', {}, 99));
  expect(await shown(agent.session)).toMatchObject({ state: 'LEFT', connected: false });
});

function foreign() {
  const made = createIssuer(Math.floor(Date.now() / 1000));
  const issuer = new GatewayIssuer(made.gateway);
  const signer = workerdSigner();
  const fields = { sessionKey: signer.publicKey, provider: 'lab', cluster: 'euler' };
  const ticket = decodeTicket(issuer.ticket(fields, Math.floor(Date.now() / 1000)), workerdCrypto);
  return { root: toBase64url(issuer.certificate.root), agent: new TestAgent(ticket, signer) };
}

test('nodes of a listed peer are shown as name@peer; without the peer only they are gone', async () => {
  const { root, agent } = foreign();
  const ours = await TestAgent.join((await seedToken()).token);
  await ours.publish();
  expect((await agent.publish()).kind).toBe('over');
  await database(env).insert(peers).values({ name: 'eth', root, url: null, createdAt: 0 });
  await registry().reloadSettings();
  expect(await agent.publish()).toEqual({ kind: 'stored' });
  expect(await shown(agent.session)).toMatchObject({
    provider: 'lab@eth',
    issuer: 'eth',
    cluster: 'euler',
    connected: true,
  });
  await database(env).delete(peers);
  await registry().reloadSettings();
  expect(await shown(agent.session)).toBeUndefined();
  expect(await shown(ours.session)).toMatchObject({ state: 'SERVING', connected: true });
});

test('the hourly floor is signed and leaves what is alive', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  await agent.publish();
  await registry().ready();
  expect(await runDurableObjectAlarm(registry())).toBe(true);
  expect(await shown(agent.session)).toMatchObject({ state: 'SERVING' });
  expect(await agent.publish()).toEqual({ kind: 'stored' });
});
