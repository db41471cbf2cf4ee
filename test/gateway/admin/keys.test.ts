import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { apiKeys, auditLog } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { openSession, SESSION_COOKIE } from '../../../gateway/accounts/login/login-session.ts';
import { sha256Hex } from '../../../gateway/accounts/secrets.ts';
import { nameIfUnchanged } from '../../../gateway/accounts/user-keys.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

let operator: string;
beforeAll(async () => {
  operator = (await seedKey('operator')).key;
});

const secret = z.looseObject({ id: z.string(), key: z.string() });
const thing = z.looseObject({ id: z.string() });
const admin = (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
  knock(method, `/admin${path}`, { key: operator, body, headers });
const create = (body: object) => good(admin('POST', '/keys', { name: 'k', ...body }), secret);

test('what a key may do comes back as it was given, and a PATCH changes only what it names', async () => {
  const project = await good(admin('POST', '/projects', { name: 'Physics', models: ['org/*'], trace: true }), thing);
  const rights = {
    models: ['org/model', 'other/*'],
    endpoints: ['chat/completions', 'embeddings'],
    trusted_providers: ['eth', 'lab@cern'],
    regions: ['ch'],
    tiers: ['stable'],
    limits: { requests_per_minute: 5, tokens_per_month: 1_000_000 },
    no_track: true,
    scopes: ['inference'],
    project_id: project.id,
    expires_at: '2040-01-01T00:00:00.000Z',
  };
  const { id, key: _, ...made } = await create(rights);
  expect(made).toMatchObject({ ...rights, role: 'consumer', last_used_at: null, rotated_from: null });
  const patched = await good(admin('PATCH', `/keys/${id}`, { models: null, limits: null, expires_at: null }), thing);
  expect(patched).toMatchObject({ ...rights, models: null, limits: null, expires_at: null });
  expect(await (await admin('GET', `/keys/${id}`)).json()).toEqual(patched);
  await refusal(admin('PATCH', `/keys/${id}`, { role: 'operator' }), 400, 'invalid_request');
  expect(await (await admin('GET', `/keys?project_id=${project.id}`)).json()).toMatchObject({ data: [{ id }] });
});

test('a rotated key works beside its successor until the overlap is over', async () => {
  const old = await create({ role: 'operator', models: ['m'], expires_at: '2040-01-01T00:00:00Z' });
  const next = await good(admin('POST', `/keys/${old.id}/rotate`, { overlap_seconds: 3600 }), secret);
  expect(next).toMatchObject({ rotated_from: old.id, models: ['m'], expires_at: '2040-01-01T00:00:00.000Z' });
  expect(next.key).not.toBe(old.key);
  for (const { key } of [old, next]) expect((await knock('GET', '/admin/me', { key })).status).toBe(200);
  const { expires_at } = await good(admin('GET', `/keys/${old.id}`), z.looseObject({ expires_at: z.string() }));
  expect(Date.parse(expires_at) - Date.now()).toBeGreaterThan(3_590_000);
  expect(Date.parse(expires_at) - Date.now()).toBeLessThanOrEqual(3_600_000);
  await good(admin('POST', `/keys/${next.id}/rotate`, { overlap_seconds: 0 }), secret);
  await refusal(knock('GET', '/admin/me', { key: next.key }), 401, 'invalid_api_key');
  await good(admin('DELETE', `/keys/${old.id}`), thing);
  await refusal(admin('POST', `/keys/${old.id}/rotate`, {}), 422, 'unprocessable_content');
});

test('the end of a key that was rotated, or is over, is handed on to no other: it is rotated once', async () => {
  const old = await create({});
  const again = { 'idempotency-key': crypto.randomUUID() };
  const next = await good(admin('POST', `/keys/${old.id}/rotate`, { overlap_seconds: 0 }, again), secret);
  await refusal(admin('POST', `/keys/${old.id}/rotate`, {}), 422, 'unprocessable_content');
  expect(await good(admin('POST', `/keys/${old.id}/rotate`, { overlap_seconds: 0 }, again), thing)).toMatchObject({
    id: next.id,
    expires_at: null,
  });
  const last = await good(admin('POST', `/keys/${next.id}/rotate`, { overlap_seconds: 60 }), secret);
  const { message } = await refusal(admin('POST', `/keys/${next.id}/rotate`, {}), 422, 'unprocessable_content');
  expect(message).toContain(last.id);
  expect(await good(admin('GET', `/keys/${last.id}`), thing)).toMatchObject({ expires_at: null });
});

test('an idempotency key makes one thing, however often and at once it is sent, and shows its secret once', async () => {
  const again = { 'idempotency-key': crypto.randomUUID() };
  const body = { name: 'once' };
  const answers = await Promise.all([1, 2, 3, 4, 5].map(() => admin('POST', '/keys', body, again)));
  const texts = await Promise.all(answers.map((answer) => answer.text()));
  const parsed = texts.map((text) =>
    z.looseObject({ id: z.string(), key: z.string().optional() }).parse(JSON.parse(text)),
  );
  expect(new Set(parsed.map(({ id }) => id)).size).toBe(1);
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 201]);
  expect(parsed.filter(({ key }) => key !== undefined)).toHaveLength(1);
  const later = await admin('POST', '/keys', body, again);
  expect(later.headers.get('idempotent-replayed')).toBe('true');
  await refusal(admin('POST', '/keys', { name: 'another' }, again), 422, 'unprocessable_content');
  await refusal(admin('POST', '/keys', body, { 'idempotency-key': 'x'.repeat(300) }), 400, 'invalid_request');
  const project = await admin('POST', '/projects', { name: 'p' }, { 'idempotency-key': crypto.randomUUID() });
  expect(project.status).toBe(201);
  const both = { 'idempotency-key': crypto.randomUUID() };
  const two = await Promise.all(['one', 'other'].map((name) => admin('POST', '/keys', { name }, both)));
  expect(two.map(({ status }) => status).sort()).toEqual([201, 422]);
});

test('changes that are made at once keep out of each other’s way', async () => {
  const provider = 'at-once';
  await good(admin('POST', '/providers', { id: provider, name: 'before', trusted_by_default: true }), thing);
  const user = await good(admin('POST', '/users', { name: 'before' }), thing);
  const project = await good(admin('POST', '/projects', { name: 'before' }), thing);
  const rights = { disabled: true };
  for (const [path, change] of [
    [`/users/${user.id}`, rights],
    [`/projects/${project.id}`, rights],
    [`/providers/${provider}`, { trusted_by_default: false }],
  ] as const) {
    // One reads what the other has not written yet, in either order.
    const made = await Promise.all([admin('PATCH', path, { name: 'after' }), admin('PATCH', path, change)]);
    expect(made.map(({ status }) => status)).toEqual([200, 200]);
    const seen = await good(admin('GET', path), z.looseObject({ disabled_at: z.string().nullish() }));
    expect(seen).toMatchObject({ name: 'after' });
    if (change === rights) expect(seen.disabled_at).toEqual(expect.any(String));
    else expect(seen).toMatchObject({ trusted_by_default: false });
    expect(await good(admin('PATCH', path, {}), thing)).toEqual(seen);
  }
});

test('an idempotency key makes a provider once: neither twice nor again after its end', async () => {
  const make = (key: string) => admin('POST', '/providers', { id: 'come-and-go' }, { 'idempotency-key': key });
  const [first, second] = [crypto.randomUUID(), crypto.randomUUID()];
  expect((await make(first)).status).toBe(201);
  await good(admin('DELETE', '/providers/come-and-go'), thing);
  expect(await good(make(first), thing)).toMatchObject({ deleted_at: expect.any(String) });
  for (const replayed of [null, 'true']) {
    const answer = await make(second);
    expect(answer.headers.get('idempotent-replayed')).toBe(replayed);
    expect(await answer.json()).toMatchObject({ id: 'come-and-go', deleted_at: null });
  }
});

test('pages of providers go on behind the longest id', async () => {
  const id = `${'a'.repeat(63)}@${'b'.repeat(63)}`;
  await good(admin('POST', '/providers', { id }), thing);
  await good(admin('GET', `/providers?limit=1&after=${id}`), z.object({ data: z.array(thing) }));
});

test('every change is in the audit log with its author, before and after, and never with a secret', async () => {
  const { id, key } = await create({ name: 'watched' });
  await good(admin('PATCH', `/keys/${id}`, { name: 'seen' }), thing);
  await good(admin('DELETE', `/keys/${id}`), thing);
  const lines = z.object({ data: z.array(z.looseObject({ action: z.string(), actor: z.string() })) });
  const { data } = await good(admin('GET', `/audit?object=${id}`), lines);
  expect(data.map(({ action }) => action)).toEqual(['key.revoke', 'key.update', 'key.create']);
  expect(data[1]).toMatchObject({ target: id, before: { name: 'watched' }, after: { name: 'seen' } });
  expect(data[0]?.actor).toMatch(/^key_/);
  const text = JSON.stringify(await database(env).select().from(auditLog));
  for (const { hash } of await database(env).select({ hash: apiKeys.hash }).from(apiKeys))
    expect(text).not.toContain(hash);
  expect(text).not.toContain(key);
  const page = z.object({ data: z.array(z.object({ id: z.number() })), has_more: z.literal(true) });
  const first = await good(admin('GET', '/audit?limit=1'), page);
  const second = await good(admin('GET', `/audit?limit=1&after=${first.data[0]?.id}`), page);
  expect(second.data[0]?.id).toBeLessThan(first.data[0]?.id ?? 0);
});

test.each([["' OR 1=1 --"], ['key_x"; DROP TABLE api_keys; --'], ['%00'], ['../users']])(
  'an id like %s finds nothing and breaks nothing',
  async (id) => {
    const response = await admin('GET', `/keys/${encodeURIComponent(id)}`);
    expect([400, 404]).toContain(response.status);
    await refusal(admin('GET', `/keys?after=${encodeURIComponent(id)}&x=1`), 400, 'invalid_request');
    // Not an empty last page: a client that reads on from there would take a part for the whole.
    await refusal(admin('GET', `/keys?after=${encodeURIComponent(id)}`), 422, 'unprocessable_content');
    expect((await admin('GET', '/keys')).status).toBe(200);
  },
);

test('a disabled project ends its keys, and an enabled one lets them on', async () => {
  const project = await good(admin('POST', '/projects', { name: 'p' }), thing);
  const { key } = await create({ role: 'operator', project_id: project.id });
  await good(admin('PATCH', `/projects/${project.id}`, { disabled: true }), thing);
  await refusal(knock('GET', '/admin/me', { key }), 401, 'invalid_api_key');
  await good(admin('PATCH', `/projects/${project.id}`, { disabled: false }), thing);
  expect((await knock('GET', '/admin/me', { key })).status).toBe(200);
  await refusal(admin('POST', '/keys', { name: 'a', project_id: 'proj_x' }), 422, 'unprocessable_content');
});

test('a deleted provider takes its join tokens along, and can come back without them', async () => {
  await good(admin('POST', '/providers', { id: 'leaving' }), thing);
  await refusal(admin('POST', '/providers', { id: 'leaving' }), 422, 'unprocessable_content');
  const token = await good(admin('POST', '/join-tokens', { provider: 'leaving' }), thing);
  await good(admin('DELETE', '/providers/leaving'), thing);
  await good(admin('DELETE', '/providers/leaving'), thing);
  expect(await (await admin('GET', `/join-tokens/${token.id}`)).json()).toMatchObject({
    revoked_at: expect.any(String),
  });
  await refusal(admin('POST', '/join-tokens', { provider: 'leaving' }), 422, 'unprocessable_content');
  expect(await good(admin('POST', '/providers', { id: 'leaving' }), thing)).toMatchObject({ deleted_at: null });
  expect((await admin('POST', '/join-tokens', { provider: 'leaving' })).status).toBe(201);
});

test('the hash that is stored is of the whole key', async () => {
  const { id, key } = await create({});
  const [row] = await database(env).select().from(apiKeys).where(eq(apiKeys.id, id));
  expect(row?.hash).toBe(sha256Hex(key));
});

test('a user that creates keys has at most fifty valid ones, and none beyond the project', async () => {
  const project = await good(admin('POST', '/projects', { name: 'p' }), thing);
  const user = await good(admin('POST', '/users', { name: 'Ada', project_id: project.id }), thing);
  const token = await openSession(env, user.id, Date.now());
  const headers = { cookie: `other=1; ${SESSION_COOKIE}=${token}`, 'sec-fetch-site': 'same-origin' };
  const mine = (body: object) => knock('POST', '/admin/keys', { body, headers });
  for (let n = 0; n < 50; n++) {
    const made = await good(mine({ name: `k${n}` }), secret);
    expect(made).toMatchObject({ user_id: user.id, project_id: project.id, role: 'consumer' });
  }
  const said = await refusal(mine({ name: 'one more' }), 422, 'unprocessable_content');
  expect(said.message).toContain('50');
  const page = z.object({ data: z.array(z.object({ id: z.string() })) });
  const { data } = await good(knock('GET', '/admin/keys?limit=1', { headers }), page);
  await good(knock('DELETE', `/admin/keys/${data[0]?.id}`, { headers }), thing);
  expect((await mine({ name: 'again' })).status).toBe(201);
  await good(admin('PATCH', `/users/${user.id}`, { disabled: true }), thing);
  await refusal(knock('GET', '/admin/keys', { headers }), 401, 'invalid_api_key');
  await good(admin('PATCH', `/users/${user.id}`, { disabled: false }), thing);
  await refusal(knock('GET', '/admin/keys', { headers }), 401, 'invalid_api_key');
});

test('keys that a person rotated count while they work, and rotating without an overlap always goes', async () => {
  const user = await good(admin('POST', '/users', { name: 'Ada' }), thing);
  const token = await openSession(env, user.id, Date.now());
  const headers = { cookie: `${SESSION_COOKIE}=${token}`, 'sec-fetch-site': 'same-origin' };
  const mine = (path: string, body: object) => knock('POST', `/admin/keys${path}`, { body, headers });
  let { id } = await good(mine('', { name: 'k' }), secret);
  // Two concurrent rotations: only one gives a successor.
  const both = await Promise.all([1, 2].map(() => mine(`/${id}/rotate`, {})));
  expect(both.map(({ status }) => status).toSorted()).toEqual([201, 422]);
  const page = z.object({ data: z.array(z.object({ id: z.string() })) });
  const newest = await good(knock('GET', '/admin/keys?limit=1', { headers }), page);
  id = newest.data[0]?.id ?? '';
  for (let n = 2; n < 50; n++) ({ id } = await good(mine(`/${id}/rotate`, {}), secret));
  const said = await refusal(mine(`/${id}/rotate`, {}), 422, 'unprocessable_content');
  expect(said.message).toContain('overlap');
  await refusal(mine('', { name: 'one more' }), 422, 'unprocessable_content');
  const next = await good(mine(`/${id}/rotate`, { overlap_seconds: 0 }), secret);
  // This does not bind operators.
  expect((await admin('POST', `/keys/${next.id}/rotate`, {})).status).toBe(201);
});

test('where only marked providers are trusted a new one is not marked by itself', async () => {
  const shown = z.looseObject({ trusted_by_default: z.boolean() });
  expect(await good(admin('POST', '/providers', { id: 'before' }), shown)).toMatchObject({ trusted_by_default: true });
  await good(admin('PATCH', '/settings', { default_trust: 'marked' }), z.unknown());
  expect(await good(admin('POST', '/providers', { id: 'after' }), shown)).toMatchObject({ trusted_by_default: false });
  await good(admin('POST', '/join-tokens', { provider: 'implied' }), z.unknown());
  expect(await good(admin('GET', '/providers/implied'), shown)).toMatchObject({ trusted_by_default: false });
  const asked = { id: 'asked', trusted_by_default: true };
  expect(await good(admin('POST', '/providers', asked), shown)).toMatchObject({ trusted_by_default: true });
  await good(admin('PATCH', '/settings', { default_trust: null }), z.unknown());
});

test('a key that takes the place of another has it on the access lists of models, too; what was rotated twice is off them', async () => {
  const first = await create({});
  await good(admin('PATCH', '/catalogue/org/kept', { access: ['proj_other', first.id] }), thing);
  await good(admin('PATCH', '/catalogue/org/other', { access: ['proj_other'] }), thing);
  const access = async () => {
    const listed = z.object({ data: z.array(z.object({ id: z.string(), access: z.array(z.string()) })) });
    const { data } = await good(admin('GET', '/catalogue'), listed);
    return Object.fromEntries(data.map((one) => [one.id, one.access]));
  };
  const second = await good(admin('POST', `/keys/${first.id}/rotate`, {}), secret);
  expect(await access()).toEqual({ 'org/kept': ['proj_other', first.id, second.id], 'org/other': ['proj_other'] });
  const third = await good(admin('POST', `/keys/${second.id}/rotate`, {}), secret);
  expect((await access())['org/kept']).toEqual(['proj_other', second.id, third.id]);
});

test('a key that was changed or revoked since it was read has no successor: it would be as wide as before', async () => {
  const { id } = await create({});
  const read = async () => {
    const [row] = await database(env).select().from(apiKeys).where(eq(apiKeys.id, id));
    if (row === undefined) throw new Error('no key');
    return row;
  };
  const succeed = async (old: Awaited<ReturnType<typeof read>>, next: string) => {
    const row = { ...old, id: next, hash: next, rotatedFrom: id, name: nameIfUnchanged(old) };
    return database(env).insert(apiKeys).values(row).then(
      () => 'made',
      () => 'refused',
    ); // biome-ignore format: one thing
  };
  const first = await read();
  await good(admin('PATCH', `/keys/${id}`, { models: ['m'] }), thing);
  expect(await succeed(first, 'key_wide')).toBe('refused');
  const second = await read();
  await good(admin('DELETE', `/keys/${id}`), thing);
  expect(await succeed(second, 'key_revoked')).toBe('refused');
  const other = await create({ models: ['m'], limits: { requests_per_minute: 5 }, scopes: ['inference'] });
  await good(admin('POST', `/keys/${other.id}/rotate`, {}), secret);
});
