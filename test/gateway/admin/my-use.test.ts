import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { database } from '../../../gateway/accounts/database.ts';
import { findKey } from '../../../gateway/accounts/find-key.ts';
import { recordReadLimit } from '../../../gateway/admin/people/record-read-limit.ts';
import { files } from '../../../gateway/files/file-tables.ts';
import { HourRecordsReader } from '../../../gateway/usage/hour/hour-records-reader.ts';
import { type UsageRow, usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { seedKey } from '../accounts/seed.ts';
import { runInDurableObject } from '../support/durable.ts';
import { good, knock, refusal } from './support.ts';

const made = z.looseObject({ id: z.string(), key: z.string() });
const use = z.object({ limit: z.string(), allowed: z.number(), used: z.number() });
const limits = z.object({ key: z.array(use), user: z.array(use), project: z.array(use) });
const requests = z.object({ data: z.array(z.looseObject({ request_id: z.string() })), has_more: z.boolean() });

const START = Date.now();

/** One second older than row `n - 1`. */
function row(key: string, n: number, more: Partial<UsageRow> = {}): UsageRow {
  const none = { user: '', project: '', endpoint: 0, streamed: true, cached: 0, reasoning: 0, bytes: 0, traced: false };
  const flags = { aborted: false, estimated: false, complete: true };
  const times = { at: START - n * 1_000, firstMs: 20, totalMs: 90, queueMs: 5 };
  const node = { session: `s${key}`, stream: n, provider: 'lab', model: 'm', request: `r${n}`, attempt: 1, key };
  return { ...none, ...flags, ...times, ...node, status: 200, prompt: 3, completion: 4, ...more };
}

test('a key reads its own limits with what is used of them, and one without limits reads none', async () => {
  const operator = (await seedKey('operator')).key;
  const body = { name: 'limited', limits: { requests_per_minute: 10, tokens_per_month: 1_000 } };
  const { key, id } = await good(knock('POST', '/admin/keys', { key: operator, body }), made);
  const asked = {
    name: 'r1',
    keyId: id,
    key: body.limits,
    project: undefined,
    counts: 'prompt',
    bodyBytes: 10,
  } as const;
  await env.LIMITS.getByName(`key:${id}`).reserve({ ...asked, maxTokens: undefined });
  const told = await good(knock('GET', '/admin/me/limits', { key }), limits);
  expect(told.project).toEqual([]);
  expect(told.key.find(({ limit }) => limit === 'requests_per_minute')).toMatchObject({ allowed: 10, used: 1 });
  expect(told.key.map(({ limit }) => limit)).toEqual(['requests_per_minute', 'tokens_per_month']);
  expect(await good(knock('GET', '/admin/me/limits', { key: operator }), limits)).toEqual({
    key: [],
    user: [],
    project: [],
  });
});

test('a key reads what its project has of files and open batches, and nothing of others', async () => {
  const [mine, others] = [await seedKey('consumer'), await seedKey('consumer')];
  const more = { purpose: 'batch', filename: 'f', createdBy: 'k', createdAt: 1, expiresAt: null };
  const file = (id: string, key: string, bytes: number) => ({ ...more, id, owner: `key:${key}`, bytes });
  const rows = [file('file-1', mine.id, 5), file('file-2', mine.id, 7), file('file-3', others.id, 100)];
  await database(env).insert(files).values(rows);
  const amount = z.object({ allowed: z.number(), used: z.number() });
  const room = z.object({ count: amount, bytes: amount, open_batches: amount });
  expect(await good(knock('GET', '/admin/me/files', { key: mine.key }), room)).toEqual({
    count: { allowed: 20_000, used: 2 },
    bytes: { allowed: 20_000_000_000, used: 12 },
    open_batches: { allowed: 100, used: 0 },
  });
});

test('a key reads its own requests alone, the newest first, and only what failed where it asks so', async () => {
  const [mine, others] = [await seedKey('consumer'), await seedKey('consumer')];
  const refused = { session: '', status: 429, error: 'queue_full', provider: '', firstMs: 0 };
  const rows = [row(mine.id, 1), row(mine.id, 2, refused), row(others.id, 3)];
  for (const one of rows) await env.USAGE.getByName(usageShardOf(one.at)).add([one]);
  const all = await good(knock('GET', '/admin/me/requests', { key: mine.key }), requests);
  expect(all.data.map((one) => one.request_id)).toEqual(['r1', 'r2']);
  expect(all.data[0]).toMatchObject({ first_token_ms: 25, node: `s${mine.id}`, error: null });
  const failed = await good(knock('GET', '/admin/me/requests?failed=1', { key: mine.key }), requests);
  expect(failed.data).toMatchObject([{ request_id: 'r2', status: 429, error: 'queue_full', node: null }]);
  const hours = z.object({
    data: z.array(z.object({ requests: z.number(), failed: z.number(), completion_tokens: z.number() })),
  });
  const { data } = await good(knock('GET', '/admin/me/hours?hours=2', { key: mine.key }), hours);
  const sum = (name: 'requests' | 'failed' | 'completion_tokens') => data.reduce((all, one) => all + one[name], 0);
  expect([sum('requests'), sum('failed'), sum('completion_tokens')]).toEqual([2, 1, 8]);
  const first = await good(knock('GET', '/admin/me/requests?limit=1', { key: mine.key }), requests);
  expect([first.data.length, first.has_more]).toEqual([1, true]);
});

test('a report of one user reads only records of this user', async () => {
  const object = env.USAGE.getByName('2026-01-02T03');
  const of = (n: number) => (n % 100 === 0 ? { user: 'user_few' } : { user: n % 2 === 0 ? 'user_many' : '' });
  const rows = Array.from({ length: 1_000 }, (_, n) =>
    row('key_1', n, { ...of(n), status: n % 200 === 0 ? 500 : 200 }),
  );
  await object.add(rows);
  await runInDurableObject(object, (_, { storage }) => {
    let read = 0;
    const exec = (query: string, ...values: unknown[]) => {
      const cursor = storage.sql.exec(query, ...values);
      const found = cursor.toArray();
      read += cursor.rowsRead;
      return { toArray: () => found, one: () => found[0], [Symbol.iterator]: () => found.values() };
    };
    const reader = new HourRecordsReader({ exec } as unknown as ConstructorParameters<typeof HourRecordsReader>[0]);
    const few = { user: 'user_few', key: 'key_1' };
    expect(reader.sums(few)).toMatchObject({ requests: 10, failed: 5 });
    expect(reader.recent({ ...few, failed: true }, 100)).toHaveLength(5);
    expect(reader.recent({ user: 'user_none', key: 'key_1', failed: false }, 100)).toEqual([]);
    expect(reader.sums({ user: undefined, key: 'key_2' })).toMatchObject({ requests: 0 });
    expect(read).toBeLessThan(200);
    // A key that belongs to no user.
    expect(reader.sums({ user: undefined, key: 'key_1' })).toMatchObject({ requests: 500 });
  });
});

test('an account reads its hours of records four times at once, and all accounts sixteen times', async () => {
  const { id, key } = await seedKey('consumer');
  const now = Date.now();
  const ends = Array.from({ length: 4 }, () => recordReadLimit.begin(id, now));
  for (const path of ['hours', 'requests'])
    await refusal(knock('GET', `/admin/me/${path}`, { key }), 429, 'rate_limit_exceeded');
  ends.pop()?.();
  expect((await knock('GET', '/admin/me/hours', { key })).status).toBe(200);
  for (let n = 0; n < 13; n++) ends.push(recordReadLimit.begin(`other_${n}`, now));
  await refusal(knock('GET', '/admin/me/requests', { key }), 503, 'server_is_overloaded');
  for (const end of ends) end();
  expect((await knock('GET', '/admin/me/requests', { key })).status).toBe(200);
});

test('what a key used of its month is still used when limits of persons are set, changed and lifted', async () => {
  const operator = (await seedKey('operator')).key;
  const ask = (method: string, path: string, body: object) => knock(method, `/admin${path}`, { key: operator, body });
  const user = await good(ask('POST', '/users', { name: 'Ada' }), z.looseObject({ id: z.string() }));
  const body = { name: 'k', user_id: user.id, limits: { tokens_per_month: 1_000 } };
  const { id, key } = await good(ask('POST', '/keys', body), made);
  const account = await findKey(env, { id }, Date.now());
  if (typeof account === 'string' || account.limits === undefined) throw new Error('no limits');
  const use = { name: 'r', attempt: 1, isComplete: true, isReserved: true, at: Date.now() };
  const settlement = { ...use, keyId: id, userId: user.id, prompt: 300, completion: 200 };
  await env.LIMITS.getByName(account.limits.subject).settle('node', [{ position: 1, settlement }]);
  const used = async () =>
    (await good(knock('GET', '/admin/me/limits', { key }), limits)).key.find(
      ({ limit }) => limit === 'tokens_per_month',
    )?.used;
  expect(await used()).toBe(500);
  for (const user_limits of [{ tokens_per_month: 9_000 }, { requests_per_minute: 9 }, null]) {
    await good(ask('PATCH', '/settings', { user_limits }), z.looseObject({}));
    expect(await used()).toBe(500);
  }
});
