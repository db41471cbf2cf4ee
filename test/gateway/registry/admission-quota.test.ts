import { env } from 'cloudflare:workers';
import { afterEach, expect, test, vi } from 'vitest';
import { providers } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { AdmissionQuota } from '../../../gateway/registry/admission-quota.ts';
import { Admissions } from '../../../gateway/registry/admissions.ts';
import { buffer } from '../../../gateway/registry/registry-storage.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { runInDurableObject } from '../support/durable.ts';
import { admitRequest, seedToken, TestAgent } from './agent.ts';

afterEach(() => {
  vi.useRealTimers();
});

const registry = () => env.REGISTRY.getByName('registry');
const knock = (token: string) =>
  admitRequest(token, { protocol: 2, public_key: toBase64url(workerdSigner().publicKey) });

async function statuses(answers: Promise<Response>[]): Promise<number[]> {
  const done = await Promise.all(answers);
  await Promise.all(done.map((answer) => answer.text()));
  return done.map(({ status }) => status);
}

/** A new provider each time, so that quotas of one test do not affect another. */
let made = 0;
const provider = () => `lab-${++made}`;

test('of twenty nodes that come at once as many get in as the token is for; the others are told to come again', async () => {
  const { id, token } = await seedToken({ provider: provider(), maxNodes: 3 });
  const all = await statuses(Array.from({ length: 20 }, () => knock(token)));
  expect(all.filter((status) => status === 200)).toHaveLength(3);
  expect(all.filter((status) => status === 429)).toHaveLength(17);
  const refused = await knock(token);
  expect(refused.headers.get('retry-after')).toBe('30');
  expect(await refused.text()).toMatch(/join token.*\b3 nodes/);
  expect(await registry().places([id])).toEqual([3]);
});

test('a place is free again when its node leaves, is doubted, or is evicted', async () => {
  const { token } = await seedToken({ provider: provider(), maxNodes: 1 });
  for (const ends of ['leaves', 'closes', 'is evicted']) {
    const agent = await TestAgent.join(token);
    await agent.publish();
    expect((await knock(token)).status).toBe(429);
    if (ends === 'leaves') await agent.publish(agent.words('LEFT'));
    if (ends === 'closes') await registry().closed(agent.session);
    if (ends === 'is evicted') await registry().evict(agent.session);
  }
  expect((await knock(token)).status).toBe(200);
});

test('a provider has so many nodes over all its tokens, and revoking one token frees its places', async () => {
  const name = provider();
  await database(env).insert(providers).values({ id: name, name, maxNodes: 4, createdAt: 0 });
  const [one, two] = [await seedToken({ provider: name }), await seedToken({ provider: name })];
  for (let n = 0; n < 3; n++) await (await TestAgent.join(one.token)).publish();
  await TestAgent.join(two.token);
  const refused = await knock(two.token);
  expect(await refused.text()).toMatch(/provider.*\b4 nodes/);
  expect(await registry().revokeToken(one.id, true)).toBe(3);
  expect(await statuses([knock(two.token), knock(two.token), knock(two.token)])).toEqual([200, 200, 200]);
  expect((await knock(two.token)).status).toBe(429);
  const other = await seedToken({ provider: provider() });
  expect((await knock(other.token)).status, 'another provider notices nothing').toBe(200);
});

test('after the first thousand a provider has ten nodes admitted a second, and the wait that is told is true', async () => {
  await runInDurableObject(env.REGISTRY.getByName('rate'), (_, { storage }) => {
    const quota = new AdmissionQuota(new Admissions(storage), () => true);
    const node = { provider: 'lab', tokenId: 'jt', tokenNodesMax: null, providerNodesMax: null };
    for (let n = 0; n < 1_000; n++) expect(quota.refusal(node, 0)).toBeUndefined();
    expect(quota.refusal(node, 0)).toEqual({ refused: 'rate', waitMs: 100 });
    expect(quota.refusal({ ...node, provider: 'other' }, 0)).toBeUndefined();
    expect([quota.refusal(node, 99) !== undefined, quota.refusal(node, 100)]).toEqual([true, undefined]);
  });
});

test('a session that says nothing for ten minutes loses its place, and its first word after that is refused', async () => {
  const { token } = await seedToken({ provider: provider(), maxNodes: 1 });
  const silent = await TestAgent.join(token);
  expect((await knock(token)).status).toBe(429);
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 11 * 60_000 });
  const next = await TestAgent.join(token);
  expect(await silent.publish()).toEqual({ kind: 'over', reason: 'it was admitted too long ago' });
  expect(await next.publish()).toEqual({ kind: 'stored' });
});

test('a provider that revokes its own tokens gets no more tickets by that; an operator that does frees them', async () => {
  const name = provider();
  const [own, operators] = [await seedToken({ provider: name }), await seedToken({ provider: name })];
  for (const { token } of [own, operators]) await TestAgent.join(token);
  await registry().revokeToken(own.id, false);
  await registry().revokeToken(operators.id, true);
  await runInDurableObject(registry(), (_, { storage }) => {
    expect(new Admissions(storage).tickets(name, Math.floor(Date.now() / 1000))).toBe(1);
  });
});

test('admissions of a gateway that counted no places are read: their sessions have spoken', async () => {
  const name = provider();
  const agent = await TestAgent.join((await seedToken({ provider: name })).token);
  const { bytes: ticket, session, expires } = agent.ticket;
  await runInDurableObject(env.REGISTRY.getByName('of-before'), (_, { storage }) => {
    storage.sql.exec(`DROP TABLE admissions;
      CREATE TABLE admissions (session TEXT PRIMARY KEY, token TEXT NOT NULL, ticket BLOB NOT NULL, expires INTEGER NOT NULL)`);
    storage.sql.exec('INSERT INTO admissions VALUES (?, ?, ?, ?)', session, 'jt', buffer(ticket), expires);
    const admissions = new Admissions(storage);
    expect(admissions.places({ provider: name }, 0, Date.now(), (one) => one === session)).toBe(1);
    expect(admissions.speaks(session, Date.now())).toBe(true);
  });
});
