/** What users may do and see beyond the use of their keys, on both hosts. */
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { Browser, CLIENT_ID, CLIENT_SECRET, Identity } from '../support/identity.ts';
import { endAll, eventually, freePort, Managed, temporaryDirectory } from '../support/processes.ts';
import { chatBody, envelopeOf, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { NODE, ROOT } from '../support/where.ts';

const OTELA_MAIN = join(ROOT, 'clients/otela/main.ts');

let cluster: TestCluster;
beforeAll(async () => {
  // Two GPUs, as the agent sees them.
  const programs = await temporaryDirectory('otela-gpus');
  const lines = [0, 1].map((n) => `echo '${n}, GPU-${n}, NVIDIA A100-SXM4-80GB, 81920'`);
  await writeFile(join(programs, 'nvidia-smi'), ['#!/bin/sh', ...lines, ''].join('\n'), { mode: 0o755 });
  const port = await freePort('127.0.0.1');
  const issuer = `http://127.0.0.1:${port}`;
  const env = { OIDC_CLIENT_SECRETS: JSON.stringify({ [issuer]: CLIENT_SECRET }) };
  cluster = await openTestCluster({ agentEnv: { PATH: `${programs}:${process.env.PATH}` }, gateway: { env } });
  const redirectUri = `${cluster.gateway.url}/login/callback`;
  await Identity.start({ port, redirectUri, people: { grace: { name: 'Grace' } } });
  const oidc = [{ issuer, name: 'The university', client_id: CLIENT_ID, admits: 'everybody' }];
  await cluster.gateway.admin('PATCH', 'settings', { oidc });
});
afterAll(endAll);

const idSchema = z.object({ id: z.string() });
const keySchema = idSchema.extend({ key: z.string() });
const made = async (path: string, body: object) =>
  idSchema.parse(await cluster.gateway.admin('POST', path, { name: 'x', ...body })).id;
const keyOf = async (body: object) =>
  keySchema.parse(await cluster.gateway.admin('POST', 'keys', { name: 'k', ...body })).key;
const chat = (key: string, standIn: object = { tokens: 1 }, more: object = {}) =>
  cluster.ask('/v1/chat/completions', chatBody(standIn, more), { headers: { authorization: `Bearer ${key}` } });
async function status(answer: Promise<Response>): Promise<number> {
  const response = await answer;
  await response.text();
  return response.status;
}

const use = z.object({ limit: z.string(), allowed: z.number(), used: z.number(), model: z.string().optional() });
const meSchema = z.object({ limits: z.object({ key: z.array(use), user: z.array(use), project: z.array(use) }) });

it('all keys of a person share the limits that each person has by default; their own limits take the place of those', async () => {
  const [ada, bob] = [await made('users', {}), await made('users', { limits: { requests_per_minute: 3 } })];
  const limits = { requests_per_minute: 2, models: { [MODEL]: { tokens_per_month: 1_000_000 } } };
  await cluster.gateway.admin('PATCH', 'settings', { user_limits: limits });
  try {
    const keys = await Promise.all(Array.from({ length: 5 }, () => keyOf({ user_id: ada })));
    const first = await chat(keys[0] ?? '');
    expect(first.headers.get('x-ratelimit-limit-requests')).toBe('2');
    expect(Number(first.headers.get('x-ratelimit-remaining-tokens-month'))).toBeGreaterThan(999_000);
    await first.text();
    const all = await Promise.all(keys.map((key) => status(chat(key))));
    expect(all.toSorted()).toEqual([200, 429, 429, 429, 429]);
    expect((await envelopeOf(await chat(keys[0] ?? ''))).code).toBe('rate_limit_exceeded');
    const asked = await cluster.ask('/admin/me', undefined, { headers: { authorization: `Bearer ${keys[4]}` } });
    const { user } = meSchema.parse(await asked.json()).limits;
    expect(user[0]).toEqual({ limit: 'requests_per_minute', allowed: 2, used: 2 });
    expect(user[1]).toMatchObject({ limit: 'tokens_per_month', model: MODEL });
    const own = await keyOf({ user_id: bob });
    expect([
      await status(chat(own)),
      await status(chat(own)),
      await status(chat(own)),
      await status(chat(own)),
    ]).toEqual([200, 200, 200, 429]);
  } finally {
    await cluster.gateway.admin('PATCH', 'settings', { user_limits: null });
  }
});

it('a person has in a project what its lead gives them: in requests, headers and what they see of themselves', async () => {
  const project = await made('projects', { limits: { requests_per_minute: 50 } });
  const browser = new Browser('grace');
  const { response } = await browser.go(`${cluster.gateway.url}/login?return_to=/admin/me`);
  const told = await response.text();
  expect(response.status, told).toBe(200);
  const { user_id: lead } = z.object({ user_id: z.string() }).parse(JSON.parse(told));
  const ada = await made('users', {});
  const members = `projects/${project}/members`;
  const limit = (requests_per_minute: number) =>
    browser.once(`${cluster.gateway.url}/admin/${members}/${ada}`, {
      method: 'PATCH',
      body: JSON.stringify({ limits: { requests_per_minute } }),
      headers: { origin: cluster.gateway.url, 'content-type': 'application/json' },
    });
  expect((await limit(3)).status, 'who leads nothing').toBe(404);
  await cluster.gateway.admin('PUT', `${members}/${lead}`, { lead: true });
  await cluster.gateway.admin('PUT', `${members}/${ada}`, {});
  const keys = [await keyOf({ user_id: ada, project_id: project }), await keyOf({ user_id: ada, project_id: project })];
  const [key = '', other = ''] = keys;
  expect(await status(chat(key))).toBe(200);
  expect((await limit(51)).status, 'more than the project has').toBe(422);
  expect(await (await limit(3)).json()).toMatchObject({ user_id: ada, limits: { requests_per_minute: 3 } });
  const limited = await eventually('the limit', 10_000, async () => {
    const answer = await chat(other);
    await answer.text();
    return answer.headers.get('x-ratelimit-limit-requests') === '3' ? answer : undefined;
  });
  expect(limited.status).toBe(200);
  const refused = await eventually('the refusal', 10_000, async () => {
    const answer = await chat(key);
    if (answer.status === 429) return envelopeOf(answer);
    return void (await answer.text());
  });
  expect(refused.code).toBe('rate_limit_exceeded');
  const me = await cluster.ask('/admin/me', undefined, { headers: { authorization: `Bearer ${other}` } });
  expect(meSchema.parse(await me.json()).limits.user).toMatchObject([{ limit: 'requests_per_minute', allowed: 3 }]);
  const listed = await cluster.gateway.admin('GET', members);
  expect(listed).toMatchObject({ data: [{ user_id: lead, limits: null }, { limits: { requests_per_minute: 3 } }] });
});

it('GPU seconds of a project are counted by its node’s GPUs, and its requests are refused when they are used up', async () => {
  const project = await made('projects', { limits: { gpu_seconds_per_month: 1_000 } });
  const key = await keyOf({ project_id: project });
  expect(await status(chat(key, { tokens: 4, delayMs: 1_200 }))).toBe(200);
  const used = await eventually('the settlement', 20_000, async () => {
    const asked = await cluster.ask('/admin/me/limits', undefined, { headers: { authorization: `Bearer ${key}` } });
    const uses = meSchema.shape.limits.parse(await asked.json()).project;
    return uses.find(({ limit }) => limit === 'gpu_seconds_per_month')?.used || undefined;
  });
  // Two GPUs for at least 1.2 s.
  expect(used).toBeGreaterThanOrEqual(2);
  await cluster.gateway.admin('PATCH', `projects/${project}`, { limits: { gpu_seconds_per_month: used } });
  await eventually('the budget', 10_000, async () => {
    const response = await chat(key);
    if (response.status === 200) return void (await response.text());
    expect(await envelopeOf(response)).toMatchObject({ code: 'insufficient_quota' });
    return true;
  });
});

const catalogue = (model: string, body: object) => cluster.gateway.admin('PATCH', `catalogue/${model}`, body);
const listSchema = z.object({ data: z.array(z.looseObject({ id: z.string() })) });
const listed = async (path: string, key: string) => {
  const answer = await cluster.ask(path, undefined, { headers: { authorization: `Bearer ${key}` } });
  return listSchema.parse(await answer.json()).data;
};

it('a model that is kept for a project is there for its keys alone, in lists, views and requests', async () => {
  const project = await made('projects', {});
  const [inside, outside] = [await keyOf({ project_id: project }), await keyOf({})];
  await catalogue(MODEL, { access: [project] });
  try {
    await eventually('the access list', 10_000, async () => ((await status(chat(outside))) === 404 ? true : undefined));
    const unknown = await envelopeOf(await chat(outside, {}, { model: 'org/unknown' }));
    expect(unknown.code).toBe('model_not_found');
    const message = unknown.message.replace('org/unknown', MODEL);
    expect(await envelopeOf(await chat(outside))).toEqual({ ...unknown, message });
    expect(await status(chat(inside))).toBe(200);
    for (const path of ['/v1/models', '/v1/models?state=all', '/v1/registry/models', '/admin/catalogue']) {
      expect((await listed(path, inside)).map(({ id }) => id)).toEqual([MODEL]);
      expect(await listed(path, outside)).toEqual([]);
    }
    const nodes = await cluster.ask('/v1/registry/nodes', undefined, {
      headers: { authorization: `Bearer ${outside}` },
    });
    expect(await nodes.text()).not.toContain(MODEL);
    const stream = await cluster.ask('/v1/registry/models/stream?load=1', undefined, {
      headers: { authorization: `Bearer ${outside}` },
    });
    const reader = stream.body?.getReader();
    const first = await reader?.read();
    await reader?.cancel();
    expect(new TextDecoder().decode(first?.value)).toMatch(/^event: snapshot/);
    expect(new TextDecoder().decode(first?.value)).not.toContain(MODEL);
    // Otherwise a body that the gateway does not parse could name it, at a node that serves it.
    const sealedOff = { headers: { authorization: `Bearer ${outside}`, 'x-otela-model': MODEL } };
    expect(await status(cluster.ask('/v1/chat/completions', chatBody(), sealedOff))).toBe(404);
  } finally {
    await cluster.gateway.admin('DELETE', `catalogue/${MODEL}`);
  }
});

it('clients see when a model ends, and after that date what comes after it', async () => {
  await catalogue(MODEL, {
    deprecated_at: '2026-01-01T00:00:00Z',
    sunset_at: '2100-01-01T00:00:00Z',
    successor: 'org/next',
  });
  try {
    const told = await eventually('the dates', 10_000, async () => {
      const answer = await chat(cluster.key);
      await answer.text();
      return answer.headers.get('sunset') === null ? undefined : answer.headers;
    });
    expect(told.get('sunset')).toBe('Fri, 01 Jan 2100 00:00:00 GMT');
    expect(told.get('deprecation')).toBe('@1767225600');
    expect(told.get('link')).toBe('</v1/models/org/next>; rel="successor-version"');
    const [model] = await listed('/v1/models', cluster.key);
    expect(model).toMatchObject({ id: MODEL, sunset_at: '2100-01-01T00:00:00.000Z', successor: 'org/next' });
    await catalogue(MODEL, { sunset_at: '2026-01-02T00:00:00Z' });
    await eventually('its end', 10_000, async () => ((await status(chat(cluster.key))) === 404 ? true : undefined));
    const gone = await envelopeOf(await chat(cluster.key));
    expect(gone.code).toBe('model_not_found');
    expect(gone.message).toMatch(/2026-01-02.*'org\/next'/);
    expect(await listed('/v1/models', cluster.key)).toEqual([]);
  } finally {
    await cluster.gateway.admin('DELETE', `catalogue/${MODEL}`);
  }
});

it('a provider publishes only the models that it was given, and all again when it was given all', async () => {
  // The previous test removed the model.
  await eventually('the model', 10_000, async () => ((await status(chat(cluster.key))) === 200 ? true : undefined));
  await cluster.gateway.admin('PATCH', 'providers/lab', { models: ['other/*'] });
  await eventually('its models to go', 10_000, async () =>
    (await status(chat(cluster.key))) === 404 ? true : undefined,
  );
  expect(await listed('/v1/registry/models', cluster.key)).toEqual([]);
  await cluster.gateway.admin('PATCH', 'providers/lab', { models: null });
  await eventually('its models', 10_000, async () => ((await status(chat(cluster.key))) === 200 ? true : undefined));
});

const startedSchema = z.strictObject({
  device_code: z.string(),
  user_code: z.string(),
  verification_uri: z.string(),
  expires_in: z.number(),
  interval: z.number(),
});
const form = (path: string, fields: Record<string, string>) =>
  fetch(`${cluster.gateway.url}${path}`, { method: 'POST', body: new URLSearchParams(fields), redirect: 'manual' });
const started = async () =>
  startedSchema.parse(await (await form('/login/device', { client_id: 'ada@login1' })).json());
const GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
const poll = async (device_code: string, grant_type = GRANT) => {
  const answer = await form('/login/device/token', { grant_type, device_code });
  return { status: answer.status, body: z.looseObject({}).parse(await answer.json()) };
};
const approve = (key: string, user_code: string, approved = true) =>
  cluster.ask(
    '/admin/device-logins',
    { user_code, approve: approved },
    { headers: { authorization: `Bearer ${key}` } },
  );

it('otela login on a machine without a browser gets a key of the person who enters its code, into a file of its own', async () => {
  const person = await made('users', { name: 'Ada' });
  const own = await cluster.gateway.admin('POST', 'keys', { name: 'browser', user_id: person });
  const { key, id } = keySchema.parse(own);
  const file = join(await temporaryDirectory('otela-login'), 'deep', 'key');
  const args = [OTELA_MAIN, 'login', '--gateway', cluster.gateway.url, '--key-file', file];
  const login = new Managed([NODE, ...args], { label: 'otela login' });
  const [, code = ''] = await login.line(/enter ([A-Z-]+)$/m, 60_000);
  expect(await status(approve(key, code.toLowerCase().replaceAll('-', ' ')))).toBe(202);
  await login.line(/Logged in as Ada/, 60_000);
  expect((await login.exited).code).toBe(0);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  const fetched = (await readFile(file, 'utf8')).trim();
  expect(await status(chat(fetched))).toBe(200);
  const me = await cluster.ask('/admin/me', undefined, { headers: { authorization: `Bearer ${fetched}` } });
  expect(await me.json()).toMatchObject({
    user_id: person,
    role: 'consumer',
    scopes: ['inference', 'registry', 'usage'],
  });
  // It cannot approve another machine, and it ends with the key that approved it.
  expect(await status(approve(fetched, code))).toBe(403);
  await cluster.gateway.admin('DELETE', `keys/${id}`);
  await eventually('its end', 10_000, async () => ((await status(chat(fetched))) === 401 ? true : undefined));
});

it('a code is good once, for one person, for the client that began the login, and what is wrong is answered alike', async () => {
  const [ada, eve] = [await made('users', {}), await made('users', {})];
  const [adas, eves] = [await keyOf({ user_id: ada }), await keyOf({ user_id: eve })];
  const [mine, other] = [await started(), await started()];
  expect(await poll(mine.device_code)).toEqual({ status: 400, body: { error: 'authorization_pending' } });
  expect(await poll(mine.device_code)).toEqual({ status: 400, body: { error: 'slow_down' } });
  expect((await poll(mine.device_code, 'password')).body).toEqual({ error: 'unsupported_grant_type' });
  for (const wrong of ['x', `${mine.device_code}x`, mine.user_code]) {
    expect(await poll(wrong)).toEqual({ status: 400, body: { error: 'expired_token' } });
  }
  // A mistyped code, and a key that belongs to no user.
  expect(await status(approve(adas, 'AAA-AAA-AAA'))).toBe(422);
  expect(await status(approve(cluster.key, mine.user_code))).toBe(403);
  // The limits of a key that has its own would apply twice.
  expect(await status(approve(await keyOf({ user_id: ada, limits: { requests_per_minute: 1 } }), mine.user_code))).toBe(
    403,
  );
  const machine = async (user_code: string) =>
    (
      await cluster.ask('/admin/device-logins/machine', { user_code }, { headers: { authorization: `Bearer ${adas}` } })
    ).json();
  expect(await machine(mine.user_code)).toMatchObject({ object: 'device', name: 'ada@login1' });
  expect(await machine('AAA-AAA-AAA')).toMatchObject({ error: { param: 'user_code' } });
  expect(await status(approve(adas, mine.user_code))).toBe(202);
  // Too late: the code is Ada's, and Eve learns nothing.
  expect(await status(approve(eves, mine.user_code))).toBe(202);
  expect(await poll(other.device_code)).toMatchObject({ body: { error: 'authorization_pending' } });
  const two = await eventually('the key', 20_000, async () => {
    const answers = await Promise.all([poll(mine.device_code), poll(mine.device_code)]);
    return answers.some(({ status: one }) => one === 200) ? answers : undefined;
  });
  const tokens = two.flatMap(({ body }) => (typeof body.access_token === 'string' ? [body.access_token] : []));
  expect(tokens).toHaveLength(1);
  const me = await cluster.ask('/admin/me', undefined, { headers: { authorization: `Bearer ${tokens[0]}` } });
  expect(await me.json()).toMatchObject({ user_id: ada });
  expect(await status(approve(eves, other.user_code, false))).toBe(202);
  await eventually('the refusal', 20_000, async () =>
    (await poll(other.device_code)).body.error === 'access_denied' ? true : undefined,
  );
  // No link fills in a code, so a click on a link approves no machine.
  const page = await fetch(`${other.verification_uri}?user_code=${other.user_code}`, { redirect: 'manual' });
  expect(page.headers.get('location')).toBe('/#/keys?code=');
  // The number of open approvals of one person is bounded.
  const open = await Promise.all(Array.from({ length: 6 }, started));
  const told = [];
  for (const { user_code } of open) told.push(await status(approve(eves, user_code)));
  expect(told.filter((one) => one === 202).length).toBeLessThanOrEqual(5);
  expect(told.at(-1)).toBe(429);
});
