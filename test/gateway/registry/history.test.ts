/** Joins and losses: recorded as they happen, kept when the object is gone, shown to the users concerned. */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import * as z from 'zod';
import { apiKeys } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { workerdCrypto } from '../../../gateway/issuer/ed25519.ts';
import { NodeEventLog } from '../../../gateway/registry/views/node-event-log.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from '../admin/support.ts';
import { evictDurableObject, runInDurableObject } from '../support/durable.ts';
import { seedToken, TestAgent } from './agent.ts';

const registry = () => env.REGISTRY.getByName('registry');
const page = z.object({
  data: z.array(
    z.strictObject({
      object: z.literal('node_event'),
      id: z.number(),
      at: z.iso.datetime(),
      session: z.string(),
      node: z.string().nullable(),
      provider: z.string(),
      cluster: z.string(),
      event: z.string(),
      reason: z.string().nullable(),
      cause: z.string().nullable(),
    }),
  ),
  has_more: z.boolean(),
});

/** The record that is delivered for an agent that was killed. */
function lastRecord({ session, signer }: TestAgent): Uint8Array {
  return signRecord({ session, state: 'LEFT', version: 0, payload: new Uint8Array() }, signer, workerdCrypto);
}

/** The events of one session, oldest first. */
async function told({ session }: TestAgent): Promise<string[]> {
  const events = await registry().history({ session, limit: 100 });
  return events.map(({ event, reason }) => (reason === null ? event : `${event}: ${reason}`)).reverse();
}

test('a life is told in order, and once', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  await agent.publish(agent.words('JOIN', { job: { id: '7', node: 'nid001' } }));
  await agent.publish(agent.words('SERVING', { job: { id: '7', node: 'nid001' } }));
  await agent.publish(agent.words('SERVING', { region: 'x', job: { id: '7', node: 'nid001' } }));
  await registry().suspect(agent.session);
  await registry().trust(agent.session);
  await agent.publish(agent.words('DOWN'));
  await agent.publish(agent.words('LEFT'));
  expect(await told(agent)).toEqual(['join', 'serving', 'suspected: it did not answer', 'trusted', 'down', 'left']);
  const [left, , , , , joined] = await registry().history({ session: agent.session, limit: 100 });
  expect(joined).toMatchObject({ node: 'nid001', provider: 'lab', cluster: 'alps' });
  expect(left?.id).toBeGreaterThan(joined?.id ?? 0);
});

test('a node that says why it goes is told with that, when it is down and when it has left', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  await agent.publish();
  await agent.publish(agent.words('DOWN', { leaving: 'time-limit' }));
  await agent.publish(agent.words('LEFT'));
  expect(await told(agent)).toEqual(['join', 'serving', 'down: time-limit', 'left: time-limit']);
});

test('the end of a session is told with its reason, and a closed tunnel is a suspicion', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  await agent.publish();
  await registry().closed(agent.session);
  await registry().evict(agent.session);
  expect(await told(agent)).toEqual(['join', 'serving', 'suspected: its tunnel closed', 'left: operator']);
});

test('a node whose agent says it was killed is told as that, and one that said more first keeps its reason', async () => {
  const { token } = await seedToken();
  const [killed, cancelled] = [await TestAgent.join(token), await TestAgent.join(token)];
  await killed.publish();
  await registry().left(killed.ticket.bytes, lastRecord(killed));
  expect((await told(killed)).at(-1)).toBe('left: killed');
  await cancelled.publish();
  await cancelled.publish(cancelled.words('DOWN', { leaving: 'cancelled' }));
  await registry().left(cancelled.ticket.bytes, lastRecord(cancelled));
  expect((await told(cancelled)).at(-1)).toBe('left: cancelled');
});

test('departures are counted by cause, and the list tells why each node left', async () => {
  const before = (await registry().ready()).departures;
  const agent = await TestAgent.join((await seedToken()).token);
  await agent.publish();
  await agent.publish(agent.words('DOWN', { leaving: 'preempted' }));
  await agent.publish(agent.words('LEFT'));
  const { departures } = await registry().ready();
  expect(departures.preempted - before.preempted).toBe(1);
  expect(departures.unknown - before.unknown).toBe(0);
  const { key } = await seedKey('operator');
  const shown = await good(knock('GET', `/admin/nodes/${agent.session}`, { key }), z.looseObject({}));
  expect(shown).toMatchObject({ state: 'LEFT', leaving: 'preempted', cause: 'preempted' });
});

test('one that is lost and found again and again is written down once a minute', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  await agent.publish();
  for (let n = 0; n < 50; n++) {
    await registry().suspect(agent.session);
    await registry().trust(agent.session);
  }
  expect(await told(agent)).toEqual(['join', 'serving', 'suspected: it did not answer', 'trusted']);
});

test('the log outlives its object, and waking up adds nothing to it', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  await agent.publish();
  await evictDurableObject(registry());
  await agent.publish(agent.words('SERVING'));
  expect(await told(agent)).toEqual(['join', 'serving']);
});

test('it is bounded by number and by age', async () => {
  await runInDurableObject(env.REGISTRY.getByName('history-of-its-own'), (_, { storage }) => {
    const history = new NodeEventLog(storage);
    const entry = (n: number, state: 'JOIN' | 'LEFT') =>
      ({ session: `s${n}`, provider: `p${n % 20}`, cluster: 'c', state, suspected: false }) as RegistryEntry;
    const day = 24 * 60 * 60_000;
    for (let n = 0; n < 20_600; n++) history.changed(undefined, entry(n, 'JOIN'), undefined, day + n);
    const kept = history.list({ limit: 30_000 });
    expect(kept.length).toBeGreaterThanOrEqual(20_000);
    expect(kept.length).toBeLessThan(20_256);
    expect(kept[0]?.session).toBe('s20599');
    history.sweep(31 * day + 20_590);
    expect(history.list({ limit: 30_000 }).map(({ session }) => session)).toEqual(
      Array.from({ length: 9 }, (_, n) => `s${20_599 - n}`),
    );
  });
});

test('a provider with endless joins and losses displaces only its own events', async () => {
  await runInDurableObject(env.REGISTRY.getByName('history-of-a-noisy-one'), (_, { storage }) => {
    const history = new NodeEventLog(storage);
    const join = (session: string, provider: string, at: number) =>
      history.changed(
        undefined,
        { session, provider, cluster: 'c', state: 'JOIN', suspected: false } as RegistryEntry,
        undefined,
        at,
      );
    const day = 24 * 60 * 60_000;
    for (let n = 0; n < 100; n++) join(`quiet${n}`, 'quiet', day + n);

    for (let n = 0; n < 25_000; n++) join(`noisy${n}`, 'noisy', day + 100 + n);
    const noisy = history.list({ provider: 'noisy', limit: 30_000 });
    expect(noisy[0]?.session).toBe('noisy24999');
    expect(noisy.length).toBeGreaterThanOrEqual(2_000);
    expect(noisy.length).toBeLessThan(2_256);
    expect(history.list({ provider: 'quiet', limit: 1_000 })).toHaveLength(100);
  });
});

test('operators see all of it page by page, a provider its own, a consumer and a stranger nothing', async () => {
  const operator = (await seedKey('operator')).key;
  const eth = await seedKey('provider');
  await database(env).update(apiKeys).set({ provider: 'eth' }).where(eq(apiKeys.id, eth.id));
  const mine = await TestAgent.join((await seedToken({ provider: 'eth' })).token);
  const others = await TestAgent.join((await seedToken({ provider: 'psi' })).token);
  await mine.publish();
  await others.publish();
  const read = (key: string, query = '') => good(knock('GET', `/admin/nodes/history${query}`, { key }), page);
  const all = await read(operator);
  expect(all.data.slice(0, 4).map(({ session, event }) => [session, event])).toEqual([
    [others.session, 'serving'],
    [others.session, 'join'],
    [mine.session, 'serving'],
    [mine.session, 'join'],
  ]);
  const first = await read(operator, '?limit=1');
  expect(first.has_more).toBe(true);
  const second = await read(operator, `?limit=1&after=${first.data[0]?.id}`);
  expect([first.data[0]?.event, second.data[0]?.event]).toEqual(['serving', 'join']);
  expect(new Set((await read(eth.key)).data.map(({ session }) => session))).toEqual(new Set([mine.session]));
  expect((await read(eth.key, `?session=${others.session}`)).data).toEqual([]);
  expect((await read(operator, '?event=join&limit=2')).data.map(({ event }) => event)).toEqual(['join', 'join']);
  await refusal(knock('GET', '/admin/nodes/history?event=born', { key: operator }), 400, 'invalid_request');
  const consumer = (await seedKey('consumer')).key;
  await refusal(knock('GET', '/admin/nodes/history', { key: consumer }), 403, 'permission_denied');
  await refusal(knock('GET', '/admin/nodes/history'), 401, 'invalid_api_key');
});
