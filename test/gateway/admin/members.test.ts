/** Projects with several members, their leads, and requests for access: which roles may do what. */
import { createExecutionContext } from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { projectMembers, projects, users } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { openSession, SESSION_COOKIE } from '../../../gateway/accounts/login/login-session.ts';
import worker from '../../../gateway/index.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

const idSchema = z.looseObject({ id: z.string() });
const keySchema = z.looseObject({ id: z.string(), key: z.string(), project_id: z.string().nullable() });
const memberSchema = z.looseObject({ user_id: z.string(), lead: z.boolean() });
const listSchema = z.object({ data: z.array(z.looseObject({ id: z.string().optional() })) });

let operator = '';
beforeAll(async () => {
  operator = (await seedKey('operator')).key;
});

const asOperator = (method: string, path: string, body?: object) =>
  knock(method, `/admin${path}`, { key: operator, body });
const made = async (path: string, body: object = {}) =>
  (await good(asOperator('POST', path, { name: 'x', ...body }), idSchema)).id;

/** A logged-in person, as in a browser. */
async function person(project?: string) {
  const id = await made('/users', project === undefined ? {} : { project_id: project });
  const cookie = `${SESSION_COOKIE}=${await openSession(env, id, Date.now())}`;
  const headers = { cookie, 'sec-fetch-site': 'same-origin' };
  return {
    id,
    headers,
    ask: (method: string, path: string, body?: object) => knock(method, `/admin${path}`, { headers, body }),
  };
}

test('a lead lets members in and out of the project that they lead, and of no other', async () => {
  const [physics, biology] = [await made('/projects'), await made('/projects')];
  const [lead, ada, eve] = [await person(), await person(), await person()];
  await good(asOperator('PUT', `/projects/${physics}/members/${lead.id}`, { lead: true }), memberSchema);
  await good(lead.ask('PUT', `/projects/${physics}/members/${ada.id}`, {}), memberSchema);
  await refusal(lead.ask('PUT', `/projects/${biology}/members/${ada.id}`, {}), 404, 'not_found');
  await refusal(lead.ask('GET', `/projects/${biology}/members`), 404, 'not_found');
  // Members and outsiders neither read nor change it; only operators appoint leads.
  for (const one of [ada, eve]) {
    await refusal(one.ask('GET', `/projects/${physics}/members`), 404, 'not_found');
    await refusal(one.ask('PUT', `/projects/${physics}/members/${one.id}`, { lead: true }), 404, 'not_found');
  }
  await refusal(lead.ask('PUT', `/projects/${physics}/members/${ada.id}`, { lead: true }), 403, 'permission_denied');
  await refusal(lead.ask('PUT', `/projects/${physics}/members/${lead.id}`, { lead: false }), 403, 'permission_denied');
  await refusal(lead.ask('DELETE', `/projects/${physics}/members/${lead.id}`), 403, 'permission_denied');
  // A change that does not mention it keeps a lead a lead.
  await good(lead.ask('PUT', `/projects/${physics}/members/${lead.id}`, {}), memberSchema);
  const { data } = await good(
    lead.ask('GET', `/projects/${physics}/members`),
    z.object({ data: z.array(memberSchema) }),
  );
  expect(data.map(({ user_id, lead: leads }) => [user_id, leads])).toEqual([
    [lead.id, true],
    [ada.id, false],
  ]);
});

test('a list of more than a thousand members says that there are more', async () => {
  const project = await made('/projects');
  const ids = JSON.stringify(Array.from({ length: 1_001 }, (_, n) => `member-${n}`));
  const insert = (query: string) => env.DB.prepare(`${query} FROM json_each(?1)`);
  await env.DB.batch([
    insert("INSERT INTO users (id, name, role, created_at) SELECT value, value, 'consumer', 0").bind(ids),
    insert(
      "INSERT INTO project_members (id, project_id, user_id, created_at) SELECT ?2 || '/' || value, ?2, value, 0",
    ).bind(ids, project),
  ]);
  const list = z.object({ data: z.array(memberSchema), has_more: z.boolean() });
  const { data, has_more } = await good(asOperator('GET', `/projects/${project}/members`), list);
  // Tests of other lists share the database.
  await env.DB.exec(
    "DELETE FROM users WHERE id LIKE 'member-%'; DELETE FROM project_members WHERE user_id LIKE 'member-%'",
  );
  expect([data.length, has_more]).toEqual([1_000, true]);
});

test('a lead by key changes no members: that needs a login', async () => {
  const project = await made('/projects');
  const user = await made('/users');
  await good(asOperator('PUT', `/projects/${project}/members/${user}`, { lead: true }), memberSchema);
  const { key } = await good(asOperator('POST', '/keys', { name: 'k', user_id: user }), keySchema);
  const put = knock('PUT', `/admin/projects/${project}/members/${user}`, { key, body: {} });
  await refusal(put, 403, 'permission_denied');
});

test('a member creates keys in each of their projects; a removed member loses those and no others', async () => {
  const [home, guest, foreign] = [await made('/projects'), await made('/projects'), await made('/projects')];
  const ada = await person(home);
  const key = (project_id?: string) => ada.ask('POST', '/keys', { name: 'k', ...(project_id && { project_id }) });
  await refusal(key(guest), 403, 'permission_denied');
  await good(asOperator('PUT', `/projects/${guest}/members/${ada.id}`, {}), memberSchema);
  const [own, there] = [await good(key(), keySchema), await good(key(guest), keySchema)];
  expect([own.project_id, there.project_id]).toEqual([home, guest]);
  await refusal(key(foreign), 403, 'permission_denied');
  const { data } = await good(ada.ask('GET', '/me/projects'), listSchema);
  expect(data.map(({ id }) => id).toSorted()).toEqual([home, guest].toSorted());
  await good(asOperator('DELETE', `/projects/${guest}/members/${ada.id}`), z.looseObject({ deleted: z.literal(true) }));
  expect((await knock('GET', '/admin/me', { key: there.key })).status).toBe(401);
  expect((await knock('GET', '/admin/me', { key: own.key })).status).toBe(200);
  await refusal(key(guest), 403, 'permission_denied');
});

test('a key that is inserted after its user left the home project is not created', async () => {
  const [home, next] = [await made('/projects'), await made('/projects')];
  const ada = await person(home);
  const leave = () => database(env).update(users).set({ projectId: next }).where(eq(users.id, ada.id));
  let batches = 0;
  const batch = async (statements: D1PreparedStatement[]) => {
    // The first one reads the account; the second one inserts the key.
    if (++batches === 2) await leave();
    return env.DB.batch(statements);
  };
  const DB = Object.assign(Object.create(env.DB) as D1Database, {
    prepare: (query: string) => env.DB.prepare(query),
    batch,
  });
  const request = new Request('https://gateway.test/admin/keys', {
    method: 'POST',
    headers: ada.headers,
    body: JSON.stringify({ name: 'k' }),
  });
  await refusal(worker.fetch(request, { ...env, DB }, createExecutionContext()), 403, 'permission_denied');
  const { data } = await good(asOperator('GET', `/keys?user_id=${ada.id}`), listSchema);
  expect(data).toEqual([]);
});

test('a guest narrows or widens no key of a project of others, but renames, rotates and revokes it', async () => {
  const [home, foreign] = [await made('/projects'), await made('/projects')];
  const ada = await person(home);
  const body = { name: 'guest', user_id: ada.id, project_id: foreign, models: ['small'], scopes: ['inference'] };
  const { id } = await good(asOperator('POST', '/keys', { ...body, expires_at: '2040-01-01T00:00:00Z' }), keySchema);
  for (const change of [{ models: null }, { scopes: null }, { expires_at: null }, { name: 'x', models: ['small'] }])
    await refusal(ada.ask('PATCH', `/keys/${id}`, change), 403, 'permission_denied');
  const renamed = await good(ada.ask('PATCH', `/keys/${id}`, { name: 'new' }), z.looseObject({}));
  expect(renamed).toMatchObject({ ...body, name: 'new', expires_at: '2040-01-01T00:00:00.000Z' });
  await good(asOperator('PUT', `/projects/${foreign}/members/${ada.id}`, {}), memberSchema);
  expect((await ada.ask('PATCH', `/keys/${id}`, { models: null })).status).toBe(200);
  await good(asOperator('DELETE', `/projects/${foreign}/members/${ada.id}`), z.looseObject({}));
  const other = await good(asOperator('POST', '/keys', { ...body, name: 'other' }), keySchema);
  const rotated = await good(ada.ask('POST', `/keys/${other.id}/rotate`, { overlap_seconds: 0 }), keySchema);
  expect(rotated).toMatchObject({ models: ['small'], scopes: ['inference'] });
  expect((await ada.ask('DELETE', `/keys/${rotated.id}`)).status).toBe(200);
});

test('leads of a project, the owner of a model and operators decide on requests, and no user on their own', async () => {
  const [physics, biology] = [await made('/projects'), await made('/projects')];
  const [lead, other, ada] = [await person(), await person(), await person()];
  await good(asOperator('PUT', `/projects/${physics}/members/${lead.id}`, { lead: true }), memberSchema);
  await good(asOperator('PUT', `/projects/${biology}/members/${other.id}`, { lead: true }), memberSchema);
  const asked = (body: object) => good(ada.ask('POST', '/access-requests', body), idSchema);
  const { id } = await asked({ project_id: physics, reason: 'a thesis' });
  const decide = (who: typeof ada, one: string, status = 'approved') =>
    who.ask('PATCH', `/access-requests/${one}`, { status });
  await refusal(decide(ada, id), 403, 'permission_denied');
  await refusal(decide(other, id), 404, 'not_found');
  expect((await good(other.ask('GET', '/access-requests'), listSchema)).data).toEqual([]);
  expect((await good(lead.ask('GET', '/access-requests'), listSchema)).data).toMatchObject([
    { id, reason: 'a thesis' },
  ]);
  await good(decide(lead, id), z.looseObject({ status: z.literal('approved') }));
  await refusal(decide(lead, id, 'refused'), 422, 'unprocessable_content');
  await good(ada.ask('POST', '/keys', { name: 'k', project_id: physics }), keySchema);

  await good(asOperator('PATCH', '/catalogue/org/kept', { access: [], owner_id: other.id }), idSchema);
  const model = (await asked({ model: 'org/kept' })).id;
  await refusal(decide(lead, model), 404, 'not_found');
  await good(decide(other, model), z.looseObject({ status: z.literal('approved') }));
  const { data } = await good(
    asOperator('GET', '/catalogue'),
    z.object({ data: z.array(z.looseObject({ id: z.string() })) }),
  );
  expect(data.find((one) => one.id === 'org/kept')).toMatchObject({ access: [ada.id] });
  expect((await good(ada.ask('GET', '/catalogue'), listSchema)).data).toMatchObject([{ id: 'org/kept', access: null }]);
});

test('requests are bounded, and do not reveal whether the requested object exists', async () => {
  const ada = await person();
  const ask = () => ada.ask('POST', '/access-requests', { project_id: 'proj_of_no_one' });
  for (let n = 0; n < 9; n++) await good(ask(), idSchema);
  const { id } = await good(ask(), idSchema);
  await refusal(ask(), 429, 'rate_limit_exceeded');
  // Withdrawn by the person, so another one is allowed.
  await good(ada.ask('PATCH', `/access-requests/${id}`, { status: 'refused' }), idSchema);
  await good(ask(), idSchema);
  await refusal(ada.ask('POST', '/access-requests', { project_id: 'p', model: 'm' }), 422, 'unprocessable_content');
});

test('a person works in as many projects as they are let into', async () => {
  const ada = await person();
  const now = Date.now();
  const ids = Array.from({ length: 120 }, (_, n) => `proj_many${n}`);
  for (const id of ids) {
    await database(env).insert(projects).values({ id, name: id, createdAt: now });
    await database(env)
      .insert(projectMembers)
      .values({ id: `${id}/${ada.id}`, projectId: id, userId: ada.id, createdAt: now });
  }
  const { data } = await good(ada.ask('GET', '/me/projects'), listSchema);
  expect(data.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
});

test('of two concurrent decisions one holds: a refused user is not admitted', async () => {
  const project = await made('/projects');
  const answers: number[][] = [];
  for (let n = 0; n < 5; n++) {
    const ada = await person();
    const { id } = await good(ada.ask('POST', '/access-requests', { project_id: project }), idSchema);
    const decide = (status: string) => asOperator('PATCH', `/access-requests/${id}`, { status });
    const both = await Promise.all([decide('refused'), decide('approved')]);
    for (const answer of both) await answer.text();
    answers.push(both.map(({ status }) => status).toSorted());
    const [, approved] = both;
    const { data } = await good(ada.ask('GET', '/me/projects'), listSchema);
    expect(data).toHaveLength(approved?.status === 200 ? 1 : 0);
  }
  expect(answers).toEqual(Array(5).fill([200, 422]));
});

test('a lead that adds and removes a user with this home project ends none of the user’s keys', async () => {
  const project = await made('/projects');
  const [lead, ada] = [await person(), await person(project)];
  await good(asOperator('PUT', `/projects/${project}/members/${lead.id}`, { lead: true }), memberSchema);
  const { id } = await good(ada.ask('POST', '/keys', { name: 'k' }), keySchema);
  await good(lead.ask('PUT', `/projects/${project}/members/${ada.id}`, {}), memberSchema);
  await good(lead.ask('DELETE', `/projects/${project}/members/${ada.id}`), z.looseObject({ deleted: z.literal(true) }));
  const key = await good(ada.ask('GET', `/keys/${id}`), z.looseObject({ revoked_at: z.string().nullable() }));
  expect(key.revoked_at).toBeNull();
});

test('what claims give neither a lead takes away nor keeps beyond them', async () => {
  const project = await made('/projects');
  const lead = await person();
  const row = { id: `${project}/${lead.id}`, projectId: project, userId: lead.id, lead: true, claimed: true };
  await database(env)
    .insert(projectMembers)
    .values({ ...row, createdAt: 0 });
  const path = `/projects/${project}/members/${lead.id}`;
  const claimed = z.looseObject({ lead: z.literal(true), claimed: z.boolean() });
  expect((await good(lead.ask('PUT', path, {}), claimed)).claimed).toBe(true);
  await refusal(lead.ask('DELETE', path), 422, 'unprocessable_content');
  await refusal(asOperator('DELETE', path), 422, 'unprocessable_content');
  // An operator's change makes it a local grant.
  expect((await good(asOperator('PUT', path, {}), claimed)).claimed).toBe(false);
  await good(asOperator('DELETE', path), z.looseObject({ deleted: z.literal(true) }));
});

test('whose home changes loses the keys in the old one, unless they are a member of it; memberships stay as they are', async () => {
  const [old, next] = [await made('/projects'), await made('/projects')];
  const [ada, bob] = [await person(old), await person(old)];
  await good(asOperator('PUT', `/projects/${old}/members/${bob.id}`, {}), memberSchema);
  const move = (id: string, project_id: string | null) =>
    good(asOperator('PATCH', `/users/${id}`, { project_id }), z.looseObject({}));
  const projectsOf = async (who: typeof ada) => {
    const { data } = await good(who.ask('GET', '/me/projects'), listSchema);
    return data.map(({ id }) => id).toSorted();
  };
  const key = (who: typeof ada) => good(who.ask('POST', '/keys', { name: 'k' }), keySchema);
  const works = async ({ key: one }: { key: string }) => (await knock('GET', '/admin/me', { key: one })).status;
  const [adas, bobs] = [await key(ada), await key(bob)];
  for (const { id } of [ada, bob]) await move(id, next);
  expect([await works(adas), await works(bobs)]).toEqual([401, 200]);
  expect(await projectsOf(ada)).toEqual([next]);
  expect(await projectsOf(bob)).toEqual([old, next].toSorted());
  const lines = await good(
    asOperator('GET', `/audit?object=${adas.id}`),
    z.object({ data: z.array(z.looseObject({ action: z.string() })) }),
  );
  expect(lines.data[0]).toMatchObject({ action: 'key.revoke', before: { user_id: ada.id, project_id: old } });
  // Repeated, or with another name, it ends nothing.
  const there = await key(ada);
  await move(ada.id, next);
  expect(await works(there)).toBe(200);
  await move(ada.id, null);
  expect([await works(there), await projectsOf(ada)]).toEqual([401, []]);
});

test('a lead limits members and those whose home the project is, within what operators gave the project', async () => {
  const project = await made('/projects', { limits: { requests_per_minute: 100, tokens_per_month: 1_000 } });
  const [lead, member, home, eve] = [await person(), await person(), await person(project), await person()];
  await good(asOperator('PUT', `/projects/${project}/members/${lead.id}`, { lead: true }), memberSchema);
  await good(lead.ask('PUT', `/projects/${project}/members/${member.id}`, {}), memberSchema);
  const path = (who: typeof eve) => `/projects/${project}/members/${who.id}`;
  const limit = (who: typeof eve, limits: object | null, by = lead) => by.ask('PATCH', path(who), { limits });
  const limited = memberSchema.extend({ limits: z.looseObject({}).nullable(), home: z.boolean() });
  const mine = { requests_per_minute: 7 };
  expect(await good(limit(member, mine), limited)).toMatchObject({ limits: mine, home: false });
  expect(await good(limit(home, mine), limited)).toMatchObject({ limits: mine, home: true, lead: false });
  const above = await refusal(limit(member, { requests_per_minute: 101 }), 422, 'unprocessable_content');
  expect(above.message).toMatch(/requests_per_minute.*100/);
  // Neither their own nor outsiders', and the project's limits belong to the operators.
  for (const one of [member, eve]) await refusal(limit(one, null, one), 404, 'not_found');
  await refusal(limit(eve, mine), 404, 'not_found');
  await refusal(lead.ask('PATCH', `/projects/${project}`, { limits: null }), 403, 'permission_denied');

  const { data } = await good(lead.ask('GET', `/projects/${project}/members`), z.object({ data: z.array(limited) }));
  expect(data.map(({ user_id, limits }) => [user_id, limits])).toEqual([
    [lead.id, null],
    [member.id, mine],
    [home.id, mine],
  ]);
  const use = z.looseObject({ limits: z.object({ user: z.array(z.looseObject({})) }) });
  const key = await good(member.ask('POST', '/keys', { name: 'k', project_id: project }), keySchema);
  const usesOf = async () => (await good(knock('GET', '/admin/me', { key: key.key }), use)).limits.user;
  expect(await usesOf()).toEqual([{ limit: 'requests_per_minute', allowed: 7, used: 0 }]);
  // It narrows what operators give the person, and does not widen it.
  await good(asOperator('PATCH', `/users/${member.id}`, { limits: { requests_per_minute: 3 } }), z.looseObject({}));
  expect(await usesOf()).toEqual([{ limit: 'requests_per_minute', allowed: 3, used: 0 }]);

  const audit = z.object({ data: z.array(z.looseObject({ action: z.string() })) });
  const lines = (await good(asOperator('GET', `/audit?object=${home.id}`), audit)).data;
  const said = { action: 'user.limit', actor: lead.id, before: { project_id: project, limits: null } };
  expect(lines[0]).toMatchObject({ ...said, after: { project_id: project, limits: mine } });

  // Limits leave with the person, and do not return with them.
  await good(lead.ask('DELETE', path(member)), z.looseObject({ deleted: z.literal(true) }));
  await good(lead.ask('PUT', path(member), {}), limited.extend({ limits: z.null() }));
  await good(limit(home, null), limited.extend({ limits: z.null() }));
});
