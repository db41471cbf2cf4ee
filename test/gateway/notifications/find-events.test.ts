import { env } from 'cloudflare:workers';
import { beforeAll, expect, test } from 'vitest';
import { apiKeys, projects, settings, users } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { NO_RESTRICTIONS } from '../../../gateway/admin/field-schemas.ts';
import { batches } from '../../../gateway/files/file-tables.ts';
import { findRecentEvents, findSlowEvents } from '../../../gateway/notifications/find-events.ts';
import { signedHeaders } from '../../../gateway/notifications/webhook-target.ts';
import { usageTotals } from '../../../gateway/usage/usage-tables.ts';

const NOW = Date.parse('2026-11-20T12:00:00Z');
const DAY_MS = 86_400_000;
const LIMITS = { tokens_per_month: 1_000 };

beforeAll(async () => {
  const db = database(env);
  const created = { ...NO_RESTRICTIONS, createdAt: 1, disabledAt: null };
  await db.insert(projects).values([
    { ...created, id: 'p_near', name: 'a', limits: LIMITS },
    { ...created, id: 'p_over', name: 'b', limits: LIMITS },
    { ...created, id: 'p_below', name: 'c', limits: LIMITS },
    { ...created, id: 'p_free', name: 'd' },
  ]);
  const zero = {
    requests: 1,
    failed: 0,
    aborted: 0,
    estimated: 0,
    cached: 0,
    reasoning: 0,
    firstTokenMs: 0,
    totalMs: 0,
  };
  const used = (project: string, prompt: number, day = '2026-11-02', user = '') =>
    db
      .insert(usageTotals)
      .values({ ...zero, day, project, user, key: '', model: 'm', provider: '', prompt, completion: 1 });
  await used('p_near', 799);
  await used('p_over', 600);
  await used('p_over', 600, '2026-11-03');
  await used('p_below', 700);
  await used('p_below', 9_000, '2026-10-31');
  await used('p_free', 1_000_000, '2026-11-04', 'u_default');
  await db.insert(users).values([
    { id: 'u_default', name: 'A', role: 'consumer', createdAt: 1 },
    { id: 'u_own', name: 'B', role: 'consumer', createdAt: 1, limits: {} },
  ]);
  await used('p_free', 1_000_000, '2026-11-05', 'u_own');
  await db.insert(settings).values({ name: 'user_limits', value: { tokens_per_month: 500 }, updatedAt: 1 });
});

const ids = (events: readonly { id: string }[]) => events.map(({ id }) => id).sort();

test('monthly limits are reported at 80 and at 100 percent, of this month only', async () => {
  const events = await findSlowEvents(env, NOW);
  expect(ids(events)).toEqual([
    'limit.reached/project/p_near/2026-11/80',
    'limit.reached/project/p_over/2026-11/100',
    'limit.reached/project/p_over/2026-11/80',
    'limit.reached/user/u_default/2026-11/100',
    'limit.reached/user/u_default/2026-11/80',
  ]);
  const near = events.find(({ id }) => id.includes('p_near'));
  expect(near?.data).toEqual({
    ...{ kind: 'project', id: 'p_near', limit: 'tokens_per_month' },
    ...{ percent: 80, used: 800, allowed: 1_000, month: '2026-11' },
  });
  expect(ids(await findSlowEvents(env, NOW + 31 * DAY_MS))).toEqual([]);
});

test('keys are reported in their last week, but not keys that live for less than two', async () => {
  const key = (id: string, createdAt: number, expiresAt: number | null, revokedAt: number | null = null) => ({
    ...NO_RESTRICTIONS,
    ...{ id, name: id, hash: id, prefix: id, role: 'consumer' as const, createdAt, expiresAt, revokedAt },
  });
  // One by one: D1 binds at most 100 values.
  for (const row of [
    key('k_soon', NOW - 90 * DAY_MS, NOW + 6 * DAY_MS),
    key('k_later', NOW - 90 * DAY_MS, NOW + 8 * DAY_MS),
    key('k_short', NOW - DAY_MS, NOW + 6 * DAY_MS),
    key('k_gone', NOW - 90 * DAY_MS, NOW + 6 * DAY_MS, NOW),
    key('k_ended', NOW - 90 * DAY_MS, NOW - 1),
    key('k_endless', NOW - 90 * DAY_MS, null),
  ])
    await database(env).insert(apiKeys).values(row);
  const events = (await findSlowEvents(env, NOW)).filter(({ type }) => type === 'key.expiring');
  expect(ids(events)).toEqual([`key.expiring/k_soon/${NOW + 6 * DAY_MS}`]);
});

test('batches are reported at their end', async () => {
  const seconds = NOW / 1_000;
  const batch = (id: string, open: boolean, summary: object) => ({
    ...{ id, owner: 'project:p', createdBy: 'key_1', createdAt: NOW - DAY_MS, open },
    summary: { status: 'completed', ...summary },
  });
  await database(env)
    .insert(batches)
    .values([
      batch('b_open', true, { status: 'in_progress' }),
      batch('b_done', false, { completed_at: seconds - 5 }),
      batch('b_failed', false, { status: 'failed', failed_at: seconds - 5 }),
      batch('b_before', false, { completed_at: seconds - 3_600 }),
    ]);
  const events = (await findRecentEvents(env, NOW - 60_000)).filter(({ type }) => type === 'batch.ended');
  expect(ids(events)).toEqual(['batch.ended/b_done', 'batch.ended/b_failed']);
  expect(events.find(({ id }) => id.endsWith('b_failed'))?.data).toEqual({
    ...{ batch_id: 'b_failed', owner: 'project:p', key_id: 'key_1', status: 'failed' },
  });
});

/** Inserts 1,001 rows, which `columns` makes of the number `n`. */
const insertMany = (table: string, columns: Readonly<Record<string, string>>) =>
  env.DB.prepare(`WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n <= 1000)
    INSERT INTO ${table} (${Object.keys(columns).join(', ')}) SELECT ${Object.values(columns).join(', ')} FROM numbers`).run();

test('a thousand younger batches that have ended do not hide the end of an old one', async () => {
  const now = NOW + DAY_MS;
  const ended = (at: number) => JSON.stringify({ status: 'completed', completed_at: at / 1_000 });
  const columns = { owner: `'project:p'`, created_by: `'key_1'`, open: '0' };
  await insertMany('batches', {
    ...columns,
    ...{ id: `'b_young_' || n`, created_at: `${now - DAY_MS} + n`, summary: `'${ended(now - 3_600_000)}'` },
  });
  await database(env)
    .insert(batches)
    .values({
      ...{ id: 'b_old', owner: 'project:p', createdBy: 'key_1', createdAt: now - 2 * DAY_MS, open: false },
      summary: JSON.parse(ended(now - 5_000)),
    });
  const events = (await findRecentEvents(env, now - 60_000)).filter(({ type }) => type === 'batch.ended');
  expect(ids(events)).toEqual(['batch.ended/b_old']);
});

test('a thousand keys that live for less than two weeks do not hide a key that ends', async () => {
  const now = NOW + 60 * DAY_MS;
  const text = `'k_many_' || n`;
  await insertMany('api_keys', {
    ...{ id: text, name: text, hash: text, prefix: text, role: `'consumer'` },
    ...{ created_at: String(now - DAY_MS), expires_at: `${now + DAY_MS} + n` },
  });
  const row = { id: 'k_ends', name: 'k', hash: 'k_ends', prefix: 'k', role: 'consumer' as const };
  await database(env)
    .insert(apiKeys)
    .values({ ...NO_RESTRICTIONS, ...row, createdAt: now - 90 * DAY_MS, expiresAt: now + DAY_MS });
  const events = (await findSlowEvents(env, now)).filter(({ type }) => type === 'key.expiring');
  expect(ids(events)).toEqual([`key.expiring/k_ends/${now + DAY_MS}`]);
});

test('signatures are those of Standard Webhooks', async () => {
  // Computed with Python's hmac.
  const headers = await signedHeaders('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLASw', {
    id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    atS: 1_614_265_330,
    body: '{"test": 2432232314}',
  });
  expect(headers['webhook-signature']).toBe('v1,hn6gPDuvthHWWsZDuMjgwyc63ajzh5ywzvy1quoqxtk=');
});
