import { createExecutionContext } from 'cloudflare:test';
import { env, exports } from 'cloudflare:workers';
import { Hono } from 'hono';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { readGatewaySettings } from '../../../gateway/accounts/gateway-settings.ts';
import { sha256Hex } from '../../../gateway/accounts/secrets.ts';
import { adminRoutes } from '../../../gateway/admin/admin-routes.ts';
import { errorBody, toApiError } from '../../../shared/openai/api-errors.ts';
import { seedKey } from '../accounts/seed.ts';

let operator: string;
beforeAll(async () => {
  operator = (await seedKey('operator')).key;
});

function call(method: string, path: string, body?: unknown, key: string | null = operator): Promise<Response> {
  const headers = new Headers();
  if (key !== null) headers.set('authorization', `Bearer ${key}`);
  const init: RequestInit = { method, headers };
  if (body !== undefined) init.body = typeof body === 'string' ? body : JSON.stringify(body);
  return exports.default.fetch(new Request(`https://gateway.test/admin${path}`, init));
}

const envelope = z.object({
  error: z.object({ message: z.string(), type: z.string(), param: z.string().nullable(), code: z.string() }),
});

async function expectError(response: Response, status: number, code: string) {
  expect(response.status).toBe(status);
  const { error } = envelope.parse(await response.json());
  expect(error.code).toBe(code);
  return error;
}

const createdKey = z.object({ id: z.string(), key: z.string(), prefix: z.string(), created_at: z.iso.datetime() });
const createKey = async (body: unknown) => createdKey.parse(await (await call('POST', '/keys', body)).json());

test('a new key is shown once, never with its hash, and the list shows how it begins', async () => {
  const response = await call('POST', '/keys', { name: 'ada' });
  expect(response.status).toBe(201);
  expect(response.headers.get('cache-control')).toBe('no-store');
  const text = await response.text();
  const created = createdKey.parse(JSON.parse(text));
  expect(created.key).toMatch(/^sk-otela-[\w-]{43}$/);
  expect(JSON.parse(text)).toMatchObject({ object: 'key', name: 'ada', role: 'consumer', revoked_at: null });
  const [list, one] = [await call('GET', '/keys'), await call('GET', `/keys/${created.id}`)];
  for (const answer of [text, await list.text(), await one.text()])
    expect(answer).not.toContain(sha256Hex(created.key));
  const again = await (await call('GET', `/keys/${created.id}`)).text();
  expect(again).not.toContain(created.key);
  expect(JSON.parse(again)).toMatchObject({ id: created.id, prefix: created.key.slice(0, 15) });
});

test('only operators are admitted: no key 401, a consumer 403, a revoked operator 401 immediately', async () => {
  const { key: consumer } = await createKey({ name: 'c' });
  await expectError(await call('GET', '/keys', undefined, null), 401, 'invalid_api_key');
  await expectError(await call('GET', '/keys', undefined, `sk-otela-${'x'.repeat(43)}`), 401, 'invalid_api_key');
  await expectError(await call('GET', '/keys', undefined, consumer), 403, 'permission_denied');
  await expectError(await call('GET', '/nothing/here', undefined, null), 401, 'invalid_api_key');
  const second = await createKey({ name: 'o', role: 'operator' });
  expect((await call('GET', '/keys', undefined, second.key)).status).toBe(200);
  expect((await call('DELETE', `/keys/${second.id}`)).status).toBe(200);
  await expectError(await call('GET', '/keys', undefined, second.key), 401, 'invalid_api_key');
});

test('a revoked key is among the changes that the registry carries, and repeating keeps its time', async () => {
  const { id } = await createKey({ name: 'r' });
  const first = await (await call('DELETE', `/keys/${id}`)).json();
  expect(first).toMatchObject({ id, revoked_at: expect.stringMatching(/Z$/) });
  expect(await (await call('DELETE', `/keys/${id}`)).json()).toEqual(first);
  expect((await readGatewaySettings(env)).changed[id]).toBeGreaterThan(0);
  expect((await readGatewaySettings(env, Date.now() + 12 * 60_000)).changed[id]).toBeUndefined();
});

test('when the registry cannot be told, the answer says so, the key is dead in D1, and repeating heals it', async () => {
  const { id, key } = await createKey({ name: 'r', role: 'operator' });
  const REGISTRY = new Proxy(env.REGISTRY, {
    get() {
      throw new Error('Durable Object is overloaded.');
    },
  });
  const door = new Hono().route('/admin', adminRoutes).onError((error) => {
    const known = toApiError(error);
    return new Response(errorBody(known), { status: known.status });
  });
  const revoke = new Request(`https://g.test/admin/keys/${id}`, {
    method: 'DELETE',
    headers: { authorization: `Bearer ${operator}` },
  });
  const answer = await door.fetch(revoke, { ...env, REGISTRY }, createExecutionContext());
  await expectError(answer, 503, 'server_is_overloaded');
  await expectError(await call('GET', '/keys', undefined, key), 401, 'invalid_api_key');
  expect((await call('DELETE', `/keys/${id}`)).status).toBe(200);
});

test('lists come newest first, a page at a time, each key once', async () => {
  const made: string[] = [];
  for (let i = 0; i < 5; i += 1) made.push((await createKey({ name: `page ${i}` })).id);
  const page = z.object({ data: z.array(z.object({ id: z.string(), name: z.string() })), has_more: z.boolean() });
  const seen: string[] = [];
  for (let after = '', more = true; more; ) {
    const answer = page.parse(await (await call('GET', `/keys?limit=2${after}`)).json());
    expect(answer.data.length).toBeLessThanOrEqual(2);
    seen.push(...answer.data.map((key) => key.id));
    after = `&after=${seen.at(-1)}`;
    more = answer.has_more;
  }
  expect(new Set(seen).size).toBe(seen.length);
  expect(seen).toEqual(expect.arrayContaining(made));
});

test.each([
  ['no JSON', '{', 'invalid_json'],
  ['nothing', '', 'invalid_json'],
  ['an array', [], 'invalid_request'],
  ['no name', {}, 'invalid_request'],
  ['a blank name', { name: '  ' }, 'invalid_request'],
  ['a name that moves the cursor', { name: 'a\u001b[2Jb' }, 'invalid_request'],
  ['a name that turns around what follows', { name: 'ada\u202e' }, 'invalid_request'],
  ['a name with a filler', { name: 'ada\u3164' }, 'invalid_request'],
  ['a name with a combining character that shows nothing', { name: 'ada\u034f' }, 'invalid_request'],
  ['a name with a blank of Braille', { name: 'ad\u2800a' }, 'invalid_request'],
  ['a name with tags', { name: 'ada\u{e0061}' }, 'invalid_request'],
  ['a role that does not exist', { name: 'a', role: 'root' }, 'invalid_request'],
  ['a field that does not exist', { name: 'a', scope: [] }, 'invalid_request'],
  ['a scope that does not exist', { name: 'a', scopes: ['root'] }, 'invalid_request'],
  ['an endpoint that does not exist', { name: 'a', endpoints: ['chat'] }, 'invalid_request'],
  ['a provider that is no id', { name: 'a', trusted_providers: ['ETH'] }, 'invalid_request'],
  ['a limit below one', { name: 'a', limits: { requests_per_minute: 0 } }, 'invalid_request'],
])('a key made from %s is 400', async (_, body, code) => {
  await expectError(await call('POST', '/keys', body), 400, code);
});

test.each([
  ['an expiry that is over', { name: 'a', expires_at: '2020-01-01T00:00:00Z' }],
  ['a user who does not exist', { name: 'a', user_id: "x' OR 1=1 --" }],
])('a key made from %s is 422: its form is right', async (_, body) => {
  await expectError(await call('POST', '/keys', body), 422, 'unprocessable_content');
});

test.each(['', 'login.example.org', 'http://login.example.org', 'https://', 'https://0.0.0.999'])(
  'an identity provider at "%s" is 400, as the description says',
  async (issuer) => {
    const oidc = [{ issuer, name: 'i', client_id: 'c' }];
    await expectError(await call('PATCH', '/settings', { oidc }), 400, 'invalid_request');
  },
);

test('a name may have letters of any script, and joined ones', async () => {
  const name = 'Zoë \u0915\u094d\u200d\u0937 \u{1f468}\u200d\u{1f4bb} \u2764\ufe0f';
  expect((await call('POST', '/projects', { name })).status).toBe(201);
});

test('a body above 64 KiB is 413 even without a content-length', async () => {
  const large = JSON.stringify({ name: 'a', x: 'y'.repeat(70_000) });
  await expectError(await call('POST', '/keys', large), 413, 'request_too_large');
  const unsized = new Request('https://gateway.test/admin/keys', {
    method: 'POST',
    headers: { authorization: `Bearer ${operator}` },
    body: new Response(large).body,
  });
  await expectError(await exports.default.fetch(unsized), 413, 'request_too_large');
});

test('an unknown path is 404, and a wrong method is 405 with the allowed ones', async () => {
  await expectError(await call('GET', '/nothing'), 404, 'not_found');
  await expectError(await call('GET', '/keys/key_nobody'), 404, 'not_found');
  await expectError(await call('DELETE', '/keys/key_nobody'), 404, 'not_found');
  await expectError(await call('DELETE', '/join-tokens/jt_nobody'), 404, 'not_found');
  await expectError(await call('GET', '/models/never/set'), 404, 'not_found');
  const response = await call('PUT', '/keys/key_x', {});
  expect(response.headers.get('allow')).toBe('GET, PATCH, DELETE');
  await expectError(response, 405, 'method_not_allowed');
  await expectError(await call('DELETE', '/keys'), 405, 'method_not_allowed');
});

test('a join token is shown once and names provider and cluster', async () => {
  const response = await call('POST', '/join-tokens', { provider: 'eth', cluster: 'alps', name: 'alps jobs' });
  expect(response.status).toBe(201);
  const made = z
    .object({ id: z.string(), token: z.string().regex(/^otela-join-[\w-]{43}$/) })
    .parse(await response.json());
  const list = await (await call('GET', '/join-tokens')).text();
  expect(list).toContain(made.id);
  expect(list).not.toContain(made.token);
  const revoked = await (await call('DELETE', `/join-tokens/${made.id}`)).json();
  expect(revoked).toMatchObject({ provider: 'eth', cluster: 'alps', revoked_at: expect.any(String) });
  await expectError(await call('POST', '/join-tokens', { provider: 'Not An Id' }), 400, 'invalid_request');
});

test.each([
  ['raw slashes', 'meta/llama/3', 'meta/llama/3'],
  ['encoded slashes', 'meta%2Fllama%2F3', 'meta/llama/3'],
  ['a percent sign, encoded', 'a%2525b', 'a%25b'],
  ['another alphabet', 'mod%C3%A8le', 'modèle'],
])('time-outs of a model whose name is written with %s', async (_, path, id) => {
  const put = await call('PUT', `/models/${path}`, { first_byte_ms: 1_000 });
  expect(put.status).toBe(200);
  expect(await put.json()).toMatchObject({ id, first_byte_ms: 1_000, stall_ms: null });
  expect((await readGatewaySettings(env)).models[id]).toEqual({ first_byte_ms: 1_000 });
  await call('PUT', `/models/${path}`, { stall_ms: 5 });
  expect(await (await call('GET', `/models/${path}`)).json()).toMatchObject({ id, first_byte_ms: null, stall_ms: 5 });
  expect(await (await call('DELETE', `/models/${path}`)).json()).toEqual({
    object: 'model_settings',
    id,
    deleted: true,
  });
  expect(await (await call('DELETE', `/models/${path}`)).json()).toMatchObject({ deleted: false });
  expect((await readGatewaySettings(env)).models[id]).toBeUndefined();
});

test('how often another node is asked is a setting of the gateway, within bounds', async () => {
  expect(await (await call('GET', '/settings')).json()).toMatchObject({ max_retries: 3, retry_share: 0.2 });
  const changed = await call('PATCH', '/settings', { max_retries: 0, retry_share: 0.5 });
  expect(await changed.json()).toMatchObject({ max_retries: 0, retry_share: 0.5 });
  expect((await readGatewaySettings(env)).retries).toEqual({ maxRetries: 0, retryShare: 0.5 });
  for (const wrong of [
    { max_retries: -1 },
    { max_retries: 11 },
    { max_retries: 1.5 },
    { retry_share: 2 },
    { retry_share: '1' },
  ])
    await expectError(await call('PATCH', '/settings', wrong), 400, 'invalid_request');
  await call('PATCH', '/settings', { max_retries: null, retry_share: null });
  expect((await readGatewaySettings(env)).retries).toEqual({ maxRetries: 3, retryShare: 0.2 });
});

test('times of the membership and the oldest agent are settings, within bounds', async () => {
  const defaults = { probe_ms: 1_000, reconnect_ms: 10_000, grace_ms: 20_000, retention_ms: 86_400_000 };
  const read = async () => (await call('GET', '/settings')).json();
  expect(await read()).toMatchObject({ membership: defaults, minimum_agent_version: null });
  const changed = await call('PATCH', '/settings', { membership: { probe_ms: 5_000 }, minimum_agent_version: '0.2.0' });
  const now = { membership: { ...defaults, probe_ms: 5_000 }, minimum_agent_version: '0.2.0' };
  expect(await changed.json()).toMatchObject(now);
  for (const [name, least, most] of [
    ['probe_ms', 500, 60_000],
    ['reconnect_ms', 1_000, 600_000],
    ['grace_ms', 2_000, 600_000],
    ['retention_ms', 3_600_000, 2_592_000_000],
  ] as const) {
    for (const wrong of [least - 1, most + 1, least + 0.5, String(least), null])
      await expectError(await call('PATCH', '/settings', { membership: { [name]: wrong } }), 400, 'invalid_request');
    for (const good of [least, most])
      expect((await call('PATCH', '/settings', { membership: { [name]: good } })).status).toBe(200);
  }
  for (const wrong of ['new', '1', '0.2', '', 2, 'v0.2.0'])
    await expectError(await call('PATCH', '/settings', { minimum_agent_version: wrong }), 400, 'invalid_request');
  await expectError(await call('PATCH', '/settings', { membership: { probes: 1 } }), 400, 'invalid_request');
  await call('PATCH', '/settings', { membership: null, minimum_agent_version: null });
  expect(await read()).toMatchObject({ membership: defaults, minimum_agent_version: null });
});

test('time-outs are whole milliseconds above nothing and up to a day', async () => {
  for (const value of [0, -1, 1.5, 86_400_001, '900s', true]) {
    const error = await expectError(await call('PUT', '/models/m', { stall_ms: value }), 400, 'invalid_request');
    expect(error.param).toBe('stall_ms');
  }
});
