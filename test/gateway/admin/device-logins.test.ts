/** Keys that machines fetch with a code: they never do more than what approved them, and end with it. */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { database } from '../../../gateway/accounts/database.ts';
import { openSession, SESSION_COOKIE } from '../../../gateway/accounts/login/session.ts';
import { apiKeys } from '../../../gateway/accounts/schema.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock } from './support.ts';

const GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
const startedSchema = z.object({ device_code: z.string(), user_code: z.string() });
const grantedSchema = z.object({ access_token: z.string() });
const idSchema = z.looseObject({ id: z.string() });
const keySchema = z.looseObject({ id: z.string(), key: z.string() });

let operator = '';
beforeAll(async () => {
  operator = (await seedKey('operator')).key;
});

const asOperator = (method: string, path: string, body?: object) =>
  knock(method, `/admin${path}`, { key: operator, body });
const user = async () => (await good(asOperator('POST', '/users', { name: 'x' }), idSchema)).id;
const keyOf = (user_id: string, more: object = {}) =>
  good(asOperator('POST', '/keys', { name: 'k', user_id, ...more }), keySchema);

const form = (path: string, fields: Record<string, string>) =>
  knock('POST', path, {
    body: new URLSearchParams(fields).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  });
let machines = 0;
const begin = () => good(form('/login/device', { client_id: `machine ${++machines}` }), startedSchema);
const fetchKey = (device_code: string) => form('/login/device/token', { grant_type: GRANT, device_code });
const approve = (key: string, user_code: string) => knock('POST', '/admin/device-logins', { key, body: { user_code } });

/** The key of a machine that `key` let in. */
async function granted(key: string): Promise<string> {
  const { device_code, user_code } = await begin();
  expect((await approve(key, user_code)).status).toBe(202);
  return (await good(fetchKey(device_code), grantedSchema)).access_token;
}

const statusOf = async (key: string) => (await knock('GET', '/admin/me/limits', { key })).status;

test('a machine gets no scope that the key which let it in lacks', async () => {
  const id = await user();
  const narrow = await granted((await keyOf(id, { scopes: ['admin', 'usage'] })).key);
  expect((await knock('GET', '/v1/models', { key: narrow })).status).toBe(403);
  expect(await statusOf(narrow)).toBe(200);
  const wide = await granted((await keyOf(id)).key);
  expect((await knock('GET', '/v1/models', { key: wide })).status).not.toBe(403);
});

test('machines end no later than the key that let them in, when that is given an end', async () => {
  const parent = await keyOf(await user());
  await granted(parent.key);
  const ends = Date.now() + 3_600_000;
  await good(asOperator('PATCH', `/keys/${parent.id}`, { expires_at: new Date(ends).toISOString() }), idSchema);
  const rows = await database(env).select().from(apiKeys).where(eq(apiKeys.grantedBy, parent.id));
  expect(rows.map(({ expiresAt }) => expiresAt)).toEqual([ends]);
});

test('all machines end with the key that let them in, however many it let in at once', async () => {
  const id = await user();
  const parent = await keyOf(id);
  const codes = await Promise.all(Array.from({ length: 53 }, begin));
  // The last five are approved when the person has one key less than they may have.
  for (let at = -2; at < codes.length; at += 5) {
    const some = codes.slice(Math.max(0, at), at + 5);
    const answers = await Promise.all(some.map(({ user_code }) => approve(parent.key, user_code)));
    for (const answer of answers) await answer.text();
    for (const { device_code } of some) await (await fetchKey(device_code)).text();
  }
  await good(asOperator('DELETE', `/keys/${parent.id}`), idSchema);
  const rows = await database(env).select().from(apiKeys).where(eq(apiKeys.grantedBy, parent.id));
  expect(rows).toHaveLength(53);
  expect(rows.filter(({ revokedAt }) => revokedAt === null)).toEqual([]);
});

test('who refuses a code that they approved before the machine came lets no machine in', async () => {
  const id = await user();
  const cookie = `${SESSION_COOKIE}=${await openSession(env, id, Date.now())}`;
  const headers = { cookie, 'sec-fetch-site': 'same-origin' };
  const { device_code, user_code } = await begin();
  const say = (approved: boolean) =>
    knock('POST', '/admin/device-logins', { headers, body: { user_code, approve: approved } });
  expect((await say(true)).status).toBe(202);
  expect((await say(false)).status).toBe(202);
  const answer = await fetchKey(device_code);
  expect([answer.status, await answer.json()]).toEqual([400, { error: 'access_denied' }]);
});
