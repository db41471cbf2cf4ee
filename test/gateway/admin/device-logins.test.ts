/** Keys that machines fetch with a code: they can never do more than the key that approved them, and end with it. */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { apiKeys, deviceLogins } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { openSession, SESSION_COOKIE } from '../../../gateway/accounts/login/login-session.ts';
import { sha256Hex } from '../../../gateway/accounts/secrets.ts';
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

/** The key of a machine that `key` approved. */
async function granted(key: string): Promise<string> {
  const { device_code, user_code } = await begin();
  expect((await approve(key, user_code)).status).toBe(202);
  return (await good(fetchKey(device_code), grantedSchema)).access_token;
}

const errorSchema = z.object({ error: z.object({ code: z.string() }) });
const refusal = async (answer: Promise<Response>) => errorSchema.parse(await (await answer).json()).error;
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

test('machines are narrowed with the key that let them in, and widened no further than they were', async () => {
  const parent = await keyOf(await user(), { models: ['org/a', 'org/b'] });
  const machine = await granted(parent.key);
  const change = (body: object) => good(asOperator('PATCH', `/keys/${parent.id}`, body), idSchema);
  const asks = async (model: string) =>
    (await refusal(knock('POST', '/v1/chat/completions', { key: machine, body: { model, messages: [] } }))).code;
  expect(await asks('org/b')).not.toBe('model_not_allowed');
  await change({ models: ['org/a'] });
  await expect.poll(() => asks('org/b')).toBe('model_not_allowed');
  expect(await asks('org/a')).not.toBe('model_not_allowed');
  await change({ models: null });
  await expect.poll(() => asks('org/b')).not.toBe('model_not_allowed');
  expect(await asks('org/c')).toBe('model_not_allowed');
  expect(await statusOf(machine)).toBe(200);
  await change({ scopes: ['inference'] });
  expect(await statusOf(machine)).toBe(403);
});

test('a key that gets limits lets no machine in, and ends those that it let in: they would have as much again', async () => {
  const parent = await keyOf(await user());
  const machine = await granted(parent.key);
  const { device_code, user_code } = await begin();
  expect((await approve(parent.key, user_code)).status).toBe(202);
  await good(asOperator('PATCH', `/keys/${parent.id}`, { limits: {} }), idSchema);
  expect(await statusOf(machine)).toBe(200);
  await good(asOperator('PATCH', `/keys/${parent.id}`, { limits: { requests_per_minute: 9 } }), idSchema);
  expect(await statusOf(machine)).toBe(401);
  // Approved before the limits, fetched after.
  const late = await fetchKey(device_code);
  expect([late.status, await late.json()]).toEqual([400, { error: 'access_denied' }]);
});

test('of approvals at once no more are open than five, and no more machines come than a person may have keys', async () => {
  const parent = await keyOf(await user());
  const answers = async (codes: { user_code: string }[]) => {
    const all = await Promise.all(codes.map(({ user_code }) => approve(parent.key, user_code)));
    for (const answer of all) await answer.text();
    return all.map(({ status }) => status).toSorted();
  };
  const eight = await Promise.all(Array.from({ length: 8 }, begin));
  expect(await answers(eight)).toEqual([202, 202, 202, 202, 202, 429, 429, 429]);
  for (const { device_code } of eight) await (await fetchKey(device_code)).text();
  // Five are approved although the person has only one key less than allowed: the approving key, the five from before,
  // and these.
  const { userId } = (await database(env).select().from(apiKeys).where(eq(apiKeys.id, parent.id)))[0] ?? {};
  const others = Array.from({ length: 43 }, (_, n) => ({ id: `key_${userId}_${n}`, hash: `${userId} ${n}` }));
  for (const one of others) {
    const row = { prefix: '', name: 'k', role: 'consumer' as const, createdAt: 0 };
    await database(env)
      .insert(apiKeys)
      .values({ ...row, ...one, ...(userId && { userId }) });
  }
  const codes = await Promise.all(Array.from({ length: 5 }, begin));
  expect(await answers(codes)).toEqual([202, 202, 202, 202, 202]);
  await Promise.all(codes.map(async ({ device_code }) => (await fetchKey(device_code)).text()));
  const rows = () => database(env).select().from(apiKeys).where(eq(apiKeys.grantedBy, parent.id));
  expect(await rows()).toHaveLength(6);
  await good(asOperator('DELETE', `/keys/${parent.id}`), idSchema);
  expect((await rows()).filter(({ revokedAt }) => revokedAt === null)).toEqual([]);
});

test('a user that refuses a code after approving it, before the machine came, admits no machine', async () => {
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

test('a user approves a machine for each of their projects; a user that leaves before it came approves none', async () => {
  const project = (await good(asOperator('POST', '/projects', { name: 'p' }), idSchema)).id;
  const ada = await user();
  const member = `/projects/${project}/members/${ada}`;
  const headers = {
    cookie: `${SESSION_COOKIE}=${await openSession(env, ada, Date.now())}`,
    'sec-fetch-site': 'same-origin',
  };
  const letIn = (user_code: string) =>
    knock('POST', '/admin/device-logins', { headers, body: { user_code, project_id: project } });
  const first = await begin();
  expect((await letIn(first.user_code)).status).toBe(403);
  await good(asOperator('PUT', member, {}), z.looseObject({}));
  expect((await letIn(first.user_code)).status).toBe(202);
  const { access_token: key } = await good(fetchKey(first.device_code), grantedSchema);
  expect(await (await knock('GET', '/admin/me', { key })).json()).toMatchObject({ user_id: ada, project_id: project });
  // A key passes on only its own project.
  const elsewhere = await keyOf(ada);
  const other = { user_code: (await begin()).user_code, project_id: project };
  expect((await knock('POST', '/admin/device-logins', { key: elsewhere.key, body: other })).status).toBe(403);
  const second = await begin();
  expect((await letIn(second.user_code)).status).toBe(202);
  await good(asOperator('DELETE', member), z.looseObject({}));
  expect((await fetchKey(second.device_code)).status).toBe(400);
  expect((await knock('GET', '/admin/me', { key })).status).toBe(401);
});

test('a registry that does not answer, and an answer that is lost, cost a machine no key', async () => {
  const parent = await keyOf(await user());
  const { device_code, user_code } = await begin();
  expect((await approve(parent.key, user_code)).status).toBe(202);
  const away = vi.spyOn(env.REGISTRY, 'getByName').mockImplementation(() => {
    throw new Error('away');
  });
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  let first: string;
  try {
    first = (await good(fetchKey(device_code), grantedSchema)).access_token;
  } finally {
    away.mockRestore();
    said.mockRestore();
  }
  expect(await statusOf(first)).toBe(200);
  // The machine never received it, and asks again as often as it may.
  vi.setSystemTime(Date.now() + 5_000);
  try {
    expect((await good(fetchKey(device_code), grantedSchema)).access_token).toBe(first);
    vi.setSystemTime(Date.now() + 60_000);
    const late = await fetchKey(device_code);
    expect([late.status, await late.json()]).toEqual([400, { error: 'authorization_pending' }]);
  } finally {
    vi.useRealTimers();
  }
});

test('where the key cannot be stored the approval stands, and the next poll gets it', async () => {
  const parent = await keyOf(await user());
  const { device_code, user_code } = await begin();
  expect((await approve(parent.key, user_code)).status).toBe(202);
  const fails = vi.spyOn(env.DB, 'batch').mockRejectedValue(new Error('D1 is overloaded'));
  try {
    expect((await fetchKey(device_code)).status).toBe(503);
  } finally {
    fails.mockRestore();
  }
  vi.setSystemTime(Date.now() + 5_000);
  try {
    expect(await statusOf((await good(fetchKey(device_code), grantedSchema)).access_token)).toBe(200);
  } finally {
    vi.useRealTimers();
  }
});

test('an approval that was written at the moment in which the person left the project lets no machine in', async () => {
  const project = (await good(asOperator('POST', '/projects', { name: 'p' }), idSchema)).id;
  const ada = await user();
  const { device_code, user_code } = await begin();
  const row = { hash: sha256Hex(user_code.replaceAll('-', '')), userId: ada, projectId: project, denied: false };
  const approval = { ...row, approvedBy: null, expiresAt: Date.now() + 60_000 };
  await database(env).insert(deviceLogins).values(approval);
  const answer = await fetchKey(device_code);
  expect([answer.status, await answer.json()]).toEqual([400, { error: 'access_denied' }]);
  expect(await database(env).select().from(apiKeys).where(eq(apiKeys.userId, ada))).toEqual([]);
});
