/** SCIM, with requests in the forms that Entra and Okta send. */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { apiKeys, users } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { sha256Hex } from '../../../gateway/accounts/secrets.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock } from './support.ts';

const ISSUER = 'https://login.example.org';
const OTHER = 'https://other.example.org';
const provider = (issuer: string) => ({ issuer, name: 'Institute', client_id: 'otela' });
let operator = '';
let scim = '';

beforeAll(async () => {
  operator = (await seedKey('operator')).key;
  const key = { name: 'scim', role: 'operator', scopes: ['scim'] };
  scim = (await good(knock('POST', '/admin/keys', { key: operator, body: key }), z.object({ key: z.string() }))).key;
  await settings([provider(ISSUER)]);
});

const settings = (oidc: object[]) =>
  good(knock('PATCH', '/admin/settings', { key: operator, body: { oidc } }), z.unknown());
const resource = z.looseObject({
  id: z.string(),
  externalId: z.string().optional(),
  userName: z.string(),
  displayName: z.string(),
  active: z.boolean(),
  meta: z.object({ location: z.string() }),
});
const list = z.object({ totalResults: z.number(), startIndex: z.number(), Resources: z.array(resource) });
const ask = (method: string, path: string, body?: unknown, key = scim) =>
  knock(method, `/scim/v2${path}`, { key, ...(body !== undefined && { body }) });
const find = (filter: string) => good(ask('GET', `/Users?filter=${encodeURIComponent(filter)}`), list);

async function refused(answer: Promise<Response>): Promise<[number, string | undefined, string]> {
  const response = await answer;
  expect(response.headers.get('content-type')).toBe('application/scim+json; charset=utf-8');
  const { status, scimType, detail } = z
    .object({ status: z.string(), scimType: z.string().optional(), detail: z.string() })
    .parse(await response.json());
  expect(status).toBe(String(response.status));
  return [response.status, scimType, detail];
}

async function keyOf(userId: string): Promise<string> {
  const { id, key } = await seedKey('consumer');
  await database(env).update(apiKeys).set({ userId }).where(eq(apiKeys.id, id));
  return key;
}
const works = async (key: string) => (await knock('GET', '/admin/me', { key })).status;

test('Entra: a person is created, found, renamed, and has no valid key after leaving', async () => {
  expect((await find('userName eq "ada@example.org"')).totalResults).toBe(0);
  const ada = {
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:User'],
    externalId: '4711',
    userName: 'ada@example.org',
    active: true,
    displayName: 'Ada',
    emails: [{ primary: true, type: 'work', value: 'ada@example.org' }],
    meta: { resourceType: 'User' },
    roles: [{ value: 'operator' }],
  };
  const created = await good(ask('POST', '/Users', ada), resource);
  expect(created).toMatchObject({ externalId: '4711', active: true, userName: 'ada@example.org' });
  const [row] = await database(env).select().from(users).where(eq(users.id, created.id));
  expect(row).toMatchObject({ issuer: ISSUER, subject: '4711', role: 'consumer', name: 'Ada' });
  expect((await find('userName eq "ADA@example.org"')).Resources).toMatchObject([{ id: created.id }]);
  expect((await find('externalId eq "4711"')).totalResults).toBe(1);
  const key = await keyOf(created.id);
  expect(await works(key)).toBe(200);
  const rename = { Operations: [{ op: 'Replace', path: 'displayName', value: 'Ada Lovelace' }] };
  expect(await good(ask('PATCH', `/Users/${created.id}`, rename), resource)).toMatchObject({
    displayName: 'Ada Lovelace',
  });
  const leave = { Operations: [{ op: 'Replace', path: 'active', value: 'False' }] };
  expect(await good(ask('PATCH', `/Users/${created.id}`, leave), resource)).toMatchObject({ active: false });
  expect(await works(key)).toBe(401);
  const back = { Operations: [{ op: 'Replace', path: 'active', value: 'True' }] };
  await good(ask('PATCH', `/Users/${created.id}`, back), resource);
  expect(await works(key)).toBe(200);
});

test('Okta: a person is created with names, replaced, and deactivated without a path', async () => {
  const bob = {
    userName: 'bob@example.org',
    name: { givenName: 'Bob', familyName: 'B.' },
    active: true,
    password: 'x',
  };
  const { id, externalId } = await good(ask('POST', '/Users', bob), resource);
  expect(externalId).toBe('bob@example.org');
  expect((await refused(ask('POST', '/Users', bob)))[0]).toBe(409);
  const put = { ...bob, active: true, displayName: 'Robert' };
  expect(await good(ask('PUT', `/Users/${id}`, put), resource)).toMatchObject({ displayName: 'Robert', active: true });
  const key = await keyOf(id);
  expect(await works(key)).toBe(200);
  const leave = { Operations: [{ op: 'replace', value: { active: false } }] };
  expect(await good(ask('PATCH', `/Users/${id}`, leave), resource)).toMatchObject({ active: false });
  expect(await works(key)).toBe(401);
});

test('a deleted person is disabled and keeps its usage, and a person that is created inactive has no access', async () => {
  const { id } = await good(ask('POST', '/Users', { userName: 'eve@example.org', active: false }), resource);
  const key = await keyOf(id);
  expect(await works(key)).toBe(401);
  await good(ask('PATCH', `/Users/${id}`, { Operations: [{ op: 'add', path: 'active', value: true }] }), resource);
  expect(await works(key)).toBe(200);
  expect((await ask('DELETE', `/Users/${id}`)).status).toBe(204);
  expect(await works(key)).toBe(401);
});

test('pages and metadata', async () => {
  const { totalResults } = await good(ask('GET', '/Users'), list);
  const page = await good(ask('GET', '/Users?startIndex=2&count=1'), list);
  expect([page.totalResults, page.startIndex, page.Resources.length]).toEqual([totalResults, 2, 1]);
  expect((await good(ask('GET', '/Users?count=0'), list)).Resources).toEqual([]);
  expect(page.Resources[0]?.meta.location).toBe(`https://gateway.test/scim/v2/Users/${page.Resources[0]?.id}`);
  const headers = { 'x-forwarded-prefix': '/otela' };
  const below = await good(knock('GET', '/scim/v2/Users?count=1', { key: scim, headers }), list);
  expect(below.Resources[0]?.meta.location).toMatch(/^https:\/\/gateway\.test\/otela\/scim\/v2\/Users\//);
  const config = await good(ask('GET', '/ServiceProviderConfig'), z.looseObject({ patch: z.unknown() }));
  expect(config).toMatchObject({ patch: { supported: true }, bulk: { supported: false } });
  expect((await ask('GET', '/ResourceTypes')).status).toBe(200);
});

test('only an operator with the scope may ask, and the key may do nothing else', async () => {
  const consumer = (await seedKey('consumer')).key;
  expect((await refused(ask('GET', '/Users', undefined, consumer)))[0]).toBe(403);
  expect((await refused(ask('GET', '/Users', undefined, 'sk-otela-wrong')))[0]).toBe(401);
  const usage = { name: 'usage', role: 'operator', scopes: ['usage'] };
  const other = await good(knock('POST', '/admin/keys', { key: operator, body: usage }), z.object({ key: z.string() }));
  expect((await refused(ask('GET', '/Users', undefined, other.key)))[0]).toBe(403);
  for (const path of ['/admin/users', '/admin/settings', '/v1/models'])
    expect([path, (await knock('GET', path, { key: scim })).status]).toEqual([path, 403]);
});

test('users of another provider, and users without one, are not visible', async () => {
  const person = { name: 'Zoe', email: 'zoe@example.org', role: 'operator' };
  const { id } = await good(
    knock('POST', '/admin/users', { key: operator, body: person }),
    z.object({ id: z.string() }),
  );
  for (const [method, body] of [
    ['GET', undefined],
    ['PUT', { userName: 'z' }],
    ['DELETE', undefined],
  ] as const)
    expect((await refused(ask(method, `/Users/${id}`, body)))[0]).toBe(404);
  await settings([provider(ISSUER), provider(OTHER)]);
  expect((await refused(ask('GET', '/Users')))[0]).toBe(404);
  const hash = sha256Hex(OTHER).slice(0, 16);
  const others = await good(knock('GET', `/scim/${hash}/v2/Users`, { key: scim }), list);
  expect(others.totalResults).toBe(0);
  expect((await knock('GET', '/scim/0000000000000000/v2/Users', { key: scim })).status).toBe(404);
  await settings([provider(ISSUER)]);
});

const operations = (...all: object[]) => ({ Operations: all });
test.each<[string, string, unknown, number, string | undefined]>([
  ['GET', '/Users?filter=userName sw "a"', undefined, 400, 'invalidFilter'],
  ['GET', '/Users?filter=password eq "a"', undefined, 400, 'invalidFilter'],
  ['GET', '/Users?startIndex=x', undefined, 400, 'invalidValue'],
  ['GET', '/Groups', undefined, 404, undefined],
  ['POST', '/Users', '{', 400, 'invalidSyntax'],
  ['POST', '/Users', {}, 400, 'invalidValue'],
  ['POST', '/Users', { userName: 'x', active: 'perhaps' }, 400, 'invalidValue'],
  ['POST', '/Users', { userName: 'x'.repeat(70_000) }, 413, undefined],
  ['PATCH', '/Users/ADA', operations(), 400, 'invalidValue'],
  ['PATCH', '/Users/ADA', operations({ op: 'destroy' }), 400, 'invalidValue'],
  ['PATCH', '/Users/ADA', operations({ op: 'remove' }), 400, 'noTarget'],
  ['PATCH', '/Users/ADA', operations({ op: 'replace', path: 'active', value: 7 }), 400, 'invalidValue'],
  ['PATCH', '/Users/ADA', operations({ op: 'replace', path: 'externalId', value: '1' }), 400, 'mutability'],
  [
    'PATCH',
    '/Users/ADA',
    operations(...Array.from({ length: 101 }, () => ({ op: 'add', path: 'x' }))),
    400,
    'invalidValue',
  ],
  ['PATCH', '/Users/user_none', operations({ op: 'add', path: 'x' }), 404, undefined],
])('%s %s %j is refused', async (method, path, body, status, type) => {
  const [ada] = (await find('externalId eq "4711"')).Resources;
  expect((await refused(ask(method, path.replace('ADA', ada?.id ?? ''), body))).slice(0, 2)).toEqual([status, type]);
});

test('an unknown attribute changes nothing', async () => {
  const [ada] = (await find('externalId eq "4711"')).Resources;
  const odd = operations(
    { op: 'add', path: 'urn:x:department', value: 'y' },
    { op: 'replace', path: 'role', value: 'operator' },
  );
  expect(await good(ask('PATCH', `/Users/${ada?.id}`, odd), resource)).toMatchObject({ active: true });
  const [row] = await database(env)
    .select()
    .from(users)
    .where(eq(users.id, ada?.id ?? ''));
  expect(row?.role).toBe('consumer');
});
