import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import * as z from 'zod';
import { apiKeys } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { nodeSchema, oneNodeSchema } from '../../../gateway/admin/nodes/node-views.ts';
import { REGISTRY_OBJECT_NAME } from '../../../gateway/platform/registry-object-name.ts';
import { takeCensus } from '../../../gateway/registry/views/node-census.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { entry } from '../../shared/routing/support.ts';
import { seedKey } from '../accounts/seed.ts';
import { seedToken, TestAgent } from '../registry/agent.ts';
import { good, knock, refusal } from './support.ts';

const registry = () => env.REGISTRY.getByName(REGISTRY_OBJECT_NAME);
const listed = z.object({ data: z.array(nodeSchema), has_more: z.boolean() });
const keys = { operator: '', eth: '', consumer: '' };
let mine: TestAgent;
let others: TestAgent;

beforeAll(async () => {
  keys.operator = (await seedKey('operator')).key;
  keys.consumer = (await seedKey('consumer')).key;
  const eth = await seedKey('provider');
  await database(env).update(apiKeys).set({ provider: 'eth' }).where(eq(apiKeys.id, eth.id));
  keys.eth = eth.key;
  mine = await TestAgent.join((await seedToken({ provider: 'eth' })).token);
  others = await TestAgent.join((await seedToken({ provider: 'psi' })).token);
  await mine.publish();
  await others.publish(others.words('SERVING', { models: [{ id: 'other', state: 'ready' }] }));
});

test('operators see all nodes, a provider its own, a consumer none', async () => {
  const of = async (key: string, query = '') =>
    (await good(knock('GET', `/admin/nodes${query}`, { key }), listed)).data.map(({ session }) => session);
  expect(await of(keys.operator)).toEqual([mine.session, others.session].sort());
  expect(await of(keys.eth)).toEqual([mine.session]);
  expect(await of(keys.operator, '?model=other')).toEqual([others.session]);
  expect(await of(keys.operator, '?state=DOWN')).toEqual([]);
  await refusal(knock('GET', '/admin/nodes', { key: keys.consumer }), 403, 'permission_denied');
  await refusal(knock('GET', '/admin/nodes?state=serving', { key: keys.operator }), 400, 'invalid_request');
  await refusal(knock('GET', `/admin/nodes/${others.session}`, { key: keys.eth }), 404, 'not_found');
  await refusal(knock('GET', `/admin/nodes/${'a'.repeat(26)}`, { key: keys.operator }), 404, 'not_found');
});

test('pages follow each other', async () => {
  const [first, second] = [mine.session, others.session].sort();
  const page = await good(knock('GET', '/admin/nodes?limit=1', { key: keys.operator }), listed);
  expect(page).toMatchObject({ data: [{ session: first }], has_more: true });
  const next = await good(knock('GET', `/admin/nodes?limit=1&after=${first}`, { key: keys.operator }), listed);
  expect(next).toMatchObject({ data: [{ session: second }], has_more: false });
});

test('load and breaker are those of now: what is too old is not known', async () => {
  const read = () => good(knock('GET', `/admin/nodes/${mine.session}`, { key: keys.eth }), oneNodeSchema);
  const nothing = { in_flight: null, load: null, breaker: { state: 'closed', since: null }, last_errors: [] };
  expect(await read()).toMatchObject({ object: 'node', provider: 'eth', tunnel: null, ...nothing });
  const now = Date.now();
  await registry().live(mine.session, {
    load: { running: 3, waiting: 1, kvUse: 0.5, at: now, open: 2 },
    breaker: { state: 'open', since: now, until: now + 60_000 },
  });
  expect(await read()).toMatchObject({
    in_flight: 2,
    load: { running: 3, waiting: 1, kv_use: 0.5 },
    breaker: { state: 'open', since: new Date(now).toISOString() },
  });
  const page = await (await knock('GET', '/metrics', { key: 'metrics-token-of-tests' })).text();
  expect(page).toContain('otela_breakers{state="open"} 1\n');
  expect(page).toContain('otela_engine_requests{state="running"} 3\n');
  expect(page).toContain('otela_streams_in_flight 2\n');
  expect(page).toContain('otela_model_nodes{gen_ai_request_model="other",state="ready"} 1\n');
  await registry().live(mine.session, {
    load: { running: 3, waiting: 1, at: now - 6_000 },
    breaker: { state: 'open', since: now - 9_000, until: now - 1 },
  });
  expect(await read()).toMatchObject({ load: null, in_flight: null, breaker: { state: 'half-open' } });
});

test('a node that an operator ends is in the audit log; one that is not there is not', async () => {
  const { token } = await seedToken({ provider: 'eth' });
  const agent = await TestAgent.join(token);
  await agent.publish();
  const end = (session: string) => knock('DELETE', `/admin/nodes/${session}`, { key: keys.operator });
  await good(end(agent.session), z.object({ deleted: z.literal(true) }));
  await refusal(end('b'.repeat(26)), 404, 'not_found');
  const lines = z.object({ data: z.array(z.looseObject({ action: z.string(), target: z.string() })) });
  const { data } = await good(knock('GET', '/admin/audit', { key: keys.operator }), lines);
  const ended = data.filter(({ action }) => action === 'node.end');
  expect(ended).toMatchObject([{ action: 'node.end', target: agent.session, before: { provider: 'eth' } }]);
});

test('by model, only nodes that load it count as loading: none that is DOWN, and none that has it on disk', () => {
  const node = (state: RegistryEntry['state'], model: 'ready' | 'loading' | 'on-disk') =>
    entry('a'.repeat(26), { state, models: [{ id: 'm', state: model }] });
  const nodes = [node('JOIN', 'loading'), node('SERVING', 'ready'), node('SERVING', 'on-disk'), node('DOWN', 'ready')];
  const sessions = { entries: () => nodes, store: { liveOf: () => ({}) } };
  const { models, states } = takeCensus(sessions as never, Date.now());
  expect(models).toEqual([{ model: 'm', ready: 1, suspected: 0, loading: 1 }]);
  expect(states).toMatchObject({ JOIN: 1, SERVING: 2, DOWN: 1 });
});
