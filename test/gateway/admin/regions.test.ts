import { env } from 'cloudflare:workers';
import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { auditLog, settings } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { readGatewaySettings } from '../../../gateway/accounts/gateway-settings.ts';
import { priceAt } from '../../../gateway/admin/regions/regions.ts';
import { isolateSnapshot, type RegistrySnapshot } from '../../../gateway/registry/isolate-snapshot.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { entry } from '../../shared/routing/support.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

let key: string;
beforeAll(async () => {
  key = (await seedKey('operator')).key;
});

const admin = (method: string, path: string, body?: unknown) =>
  knock(method, `/admin/regions${path}`, { key, ...(body === undefined ? {} : { body }) });
const anything = z.looseObject({});

afterEach(async () => {
  await good(admin('DELETE', '/plan'), anything);
  await good(admin('DELETE', '/prices'), anything);
});

const plan = (planner: string, sequence: number, near: number, holds_ms = 60_000) => ({
  planner,
  sequence,
  holds_ms,
  models: { m: { shares: { near, far: 1 - near }, spill: { near: { far: 1 } } } },
});
const planned = async () => (await readGatewaySettings(env)).regionPlan;

test('a plan is given, read and ended, and requests hear of it', async () => {
  expect(await good(admin('GET', '/plan'), anything)).toMatchObject({ planner: '', models: {}, holds: false });
  const said = await good(admin('PUT', '/plan', plan('one', 1, 0.3)), anything);
  expect(said).toMatchObject({ object: 'region_plan', planner: 'one', holds: true, warm: [], notes: [] });
  expect(await planned()).toMatchObject({ planner: 'one', models: { m: { shares: { near: 0.3 } } } });
  expect(await good(admin('GET', '/plan'), anything)).toEqual(said);
  expect(await good(admin('DELETE', '/plan'), anything)).toEqual({ object: 'region_plan', deleted: true });
  expect(await good(admin('DELETE', '/plan'), anything)).toMatchObject({ deleted: false });
  expect(await planned()).toBeUndefined();
});

test('two planners that disagree do not make shares swing: the first holds until its plan expires', async () => {
  const seen = new Set<number | undefined>();
  const answers: number[] = [];
  for (let round = 1; round <= 5; round++) {
    for (const [planner, near] of [
      ['one', 0.9],
      ['two', 0.1],
    ] as const) {
      answers.push((await admin('PUT', '/plan', plan(planner, round, near))).status);
      seen.add((await planned())?.models.m?.shares.near);
    }
  }
  expect(answers).toEqual([200, 409, 200, 409, 200, 409, 200, 409, 200, 409]);
  expect(seen).toEqual(new Set([0.9]));
  const { message } = await refusal(admin('PUT', '/plan', plan('two', 9, 0.1)), 409, 'conflict');
  expect(message).toContain('"one"');
});

test('of planners that come at once one is taken', async () => {
  const all = await Promise.all(['a', 'b', 'c', 'd'].map((planner) => admin('PUT', '/plan', plan(planner, 1, 0.5))));
  expect(all.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
});

test('a planner’s older plan is not taken, nor the same one twice', async () => {
  await good(admin('PUT', '/plan', plan('one', 5, 0.5)), anything);
  for (const sequence of [4, 5]) await refusal(admin('PUT', '/plan', plan('one', sequence, 0.1)), 409, 'conflict');
  await good(admin('PUT', '/plan', plan('one', 6, 0.4)), anything);
});

test('a plan that expired, or that a clock left in the far future, gives way to any other', async () => {
  const stored = async (expires_at: number) => {
    const value = { ...plan('dead', 7, 1), warm: [], notes: [], taken_at: 0, expires_at };
    const set = { value, updatedAt: 0 };
    await database(env)
      .insert(settings)
      .values({ name: 'region_plan', ...set })
      .onConflictDoUpdate({ target: settings.name, set });
  };
  await stored(Date.now() - 1);
  expect(await good(admin('GET', '/plan'), anything)).toMatchObject({ holds: false });
  await good(admin('PUT', '/plan', plan('one', 1, 0.5)), anything);
  await stored(Date.now() + 365 * 86_400_000);
  expect(await good(admin('GET', '/plan'), anything)).toMatchObject({ holds: false });
  await good(admin('PUT', '/plan', plan('two', 1, 0.5)), anything);
});

test('the planner is in the audit log, each plan is not', async () => {
  const lines = async () =>
    (await database(env).select().from(auditLog)).filter((row) => row.action === 'regions.plan');
  const before = (await lines()).length;
  for (let n = 1; n <= 4; n++) await good(admin('PUT', '/plan', plan('one', n, 0.5)), anything);
  expect((await lines()).length - before).toBe(1);
});

test('the policy of a plan is shown, and each change of it is in the audit log', async () => {
  const lines = async () =>
    (await database(env).select().from(auditLog)).filter((row) => row.action === 'regions.plan');
  const before = (await lines()).length;
  const policies = ['default', 'default', 'smoothness=0.1', 'smoothness=0.1', 'default'];
  for (const [at, policy] of policies.entries()) {
    const said = await good(admin('PUT', '/plan', { ...plan('one', at + 1, 0.5), policy }), anything);
    expect(said).toMatchObject({ policy });
  }
  expect(await good(admin('GET', '/plan'), anything)).toMatchObject({ policy: 'default' });
  expect((await lines()).length - before).toBe(3);
});

test.each([
  ['a policy without a name', { policy: '' }],
  ['a policy with a name too long', { policy: 'p'.repeat(65) }],
  ['a share above 1', { models: { m: { shares: { near: 1.5 } } } }],
  ['a share below 0', { models: { m: { shares: { near: -0.1 } } } }],
  ['a plan for a day', { holds_ms: 86_400_000 }],
  ['no planner', { planner: '' }],
  ['more regions than there may be', { models: { m: { shares: Object.fromEntries(regions(65)) } } }],
  ['a word that means nothing', { force: true }],
])('a plan cannot have %s', async (_, wrong) => {
  await refusal(admin('PUT', '/plan', { ...plan('one', 1, 0.5), ...wrong }), 400, 'invalid_request');
});

function regions(n: number): [string, number][] {
  return Array.from({ length: n }, (_, at) => [`r${at}`, 0.01]);
}

test('a stored plan that this version does not understand is ignored', async () => {
  await database(env)
    .insert(settings)
    .values({ name: 'region_plan', value: { planner: 7 }, updatedAt: 0 });
  expect(await planned()).toBeUndefined();
});

const NOW = Date.parse('2026-01-01T12:30:00Z');
const table = (more: object = {}) => ({
  as_of: '2026-01-01T12:00:00Z',
  stale_after_s: 7_200,
  source: 'a test',
  prices: [
    { region: 'near', usd_kwh: 0.3 },
    { region: 'far', usd_kwh: 0.1, by_hour: Array.from({ length: 24 }, (_, hour) => (hour === 12 ? -0.02 : 0.1)) },
  ],
  ...more,
});

test.each([
  ['what is there', {}, 'near', { usd_kwh: 0.3, state: 'current' }],
  ['by its hour, below 0', {}, 'FAR', { usd_kwh: -0.02, state: 'negative' }],
  ['a region that the table leaves out', {}, 'moon', { usd_kwh: null, state: 'missing' }],
  ['an old table', { as_of: '2026-01-01T10:00:00Z' }, 'near', { usd_kwh: 0.3, state: 'stale' }],
  ['a table of the day after tomorrow', { as_of: '2026-01-03T12:00:00Z' }, 'near', { usd_kwh: 0.3, state: 'stale' }],
  [
    'an old table that holds for a year',
    { as_of: '2025-06-01T10:00:00Z', stale_after_s: 365 * 86_400 },
    'near',
    { usd_kwh: 0.3, state: 'current' },
  ],
])('the price of %s', (_, more, region, expected) => {
  expect(priceAt(table(more), region, NOW)).toEqual(expected);
});

test('prices are put, read, shown with their regions and deleted', async () => {
  await refusal(admin('GET', '/prices'), 404, 'not_found');
  const said = await good(admin('PUT', '/prices', table()), anything);
  expect(await good(admin('GET', '/prices'), anything)).toEqual(said);
  const twice = {
    ...table(),
    prices: [
      { region: 'a', usd_kwh: 1 },
      { region: 'A', usd_kwh: 2 },
    ],
  };
  await refusal(admin('PUT', '/prices', twice), 422, 'unprocessable_content');
  await refusal(admin('PUT', '/prices', { ...table(), as_of: 'yesterday' }), 400, 'invalid_request');
  const { data } = await good(admin('GET', ''), z.object({ data: z.array(anything) }));
  const near = data.find(({ region }) => region === 'near');
  expect(near).toMatchObject({ nodes: 0, round_trips: null, price: { usd_kwh: 0.3, state: 'stale' } });
  expect(await good(admin('DELETE', '/prices'), anything)).toMatchObject({ deleted: true });
});

test('what an engine said while its last request ran is no use of its region once it is old', async () => {
  const nodes = new NodeIndex();
  const node = entry('a'.repeat(26), { region: 'idle' });
  nodes.put(node);
  nodes.live.setLoad(node.session, { running: 3, waiting: 2, at: Date.now() - 20_000 });
  const get = vi.spyOn(isolateSnapshot, 'get').mockReturnValue({ nodes } as unknown as RegistrySnapshot);
  const { data } = await good(admin('GET', ''), z.object({ data: z.array(anything) })).finally(() => get.mockRestore());
  const region = data.find(({ region }) => region === 'idle');
  expect(region?.models).toEqual([expect.objectContaining({ replicas: 1, running: 0, waiting: 0 })]);
});

test('the power that agents measure is summed over the GPUs of the nodes that measure it', async () => {
  const nodes = new NodeIndex();
  const gpu = { class: 'H100', name: 'NVIDIA H100', vram_mib: 81_559 };
  const hardware = { gpus: [gpu, gpu], cpus: 8, memory_mib: 65_536 };
  nodes.put(entry('e'.repeat(26), { region: 'hot', hardware, gpu_state: { power_w: 300 } }));
  nodes.put(entry('f'.repeat(26), { region: 'hot', hardware, gpu_state: { use: 0.5 } }));
  nodes.put(entry('g'.repeat(26), { region: 'hot', hardware }));
  const get = vi.spyOn(isolateSnapshot, 'get').mockReturnValue({ nodes } as unknown as RegistrySnapshot);
  const { data } = await good(admin('GET', ''), z.object({ data: z.array(anything) })).finally(() => get.mockRestore());
  const region = data.find(({ region }) => region === 'hot');
  expect(region?.models).toEqual([expect.objectContaining({ replicas: 3, power: { nodes: 1, watts: 600 } })]);
});

test('regions that a provider invents replace none with a price, in any case of letters', async () => {
  await good(admin('PUT', '/prices', table()), anything);
  const nodes = new NodeIndex();
  for (let n = 0; n < 140; n++) {
    const region = n < 8 ? variant('near', n) : `false-${n % 70}`;
    nodes.put(entry(String(n).padStart(26, 'a'), { region }));
  }
  const get = vi.spyOn(isolateSnapshot, 'get').mockReturnValue({ nodes } as unknown as RegistrySnapshot);
  const answer = z.object({ data: z.array(z.looseObject({ region: z.string() })) });
  const { data } = await good(admin('GET', ''), answer).finally(() => get.mockRestore());
  expect(data.map(({ region }) => region)).toEqual(expect.arrayContaining(['near', 'far']));
  expect(data).toHaveLength(64);
});

test('a region that has a price is first, even if its nodes and the price table differ in case', async () => {
  await good(admin('PUT', '/prices', table()), anything);
  const nodes = new NodeIndex();
  nodes.put(entry('z'.repeat(26), { region: 'NEAR' }));
  for (let n = 0; n < 140; n++)
    nodes.put(entry(String(n).padStart(26, 'c'), { region: `other-${n % 70}`, provider: `p-${n % 70}` }));
  const get = vi.spyOn(isolateSnapshot, 'get').mockReturnValue({ nodes } as unknown as RegistrySnapshot);
  const answer = z.object({ data: z.array(z.looseObject({ region: z.string() })) });
  const { data } = await good(admin('GET', ''), answer).finally(() => get.mockRestore());
  expect(data.slice(0, 2).map(({ region }) => region)).toEqual(['NEAR', 'far']);
});

test('regions that a provider invents push out its own, and none of another provider', async () => {
  const nodes = new NodeIndex();
  const put = (n: number, more: { region: string; provider: string }) =>
    nodes.put(entry(String(n).padStart(26, 'b'), more));
  for (let n = 0; n < 140; n++) put(n, { region: `false-${n % 70}`, provider: 'liar' });
  put(140, { region: 'small', provider: 'honest' });
  const get = vi.spyOn(isolateSnapshot, 'get').mockReturnValue({ nodes } as unknown as RegistrySnapshot);
  const answer = z.object({ data: z.array(z.looseObject({ region: z.string() })) });
  const { data } = await good(admin('GET', ''), answer).finally(() => get.mockRestore());
  expect(data.map(({ region }) => region)).toContain('small');
  expect(data).toHaveLength(64);
});

/** One capitalization of a word, by the bits of `n`. */
function variant(word: string, n: number): string {
  return [...word].map((letter, at) => ((n >> at) & 1 ? letter.toUpperCase() : letter)).join('');
}
