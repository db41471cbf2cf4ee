import { env } from 'cloudflare:workers';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { isRoleAtLeast } from '../../../gateway/accounts/account.ts';
import { ROLES, type Role } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import type { AdminRoute } from '../../../gateway/admin/admin-route.ts';
import { ADMIN_ROUTES } from '../../../gateway/admin/admin-routes.ts';
import { batches } from '../../../gateway/files/file-tables.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

const keys = new Map<string, string>();
const made = z.looseObject({ id: z.string() });
const withSecret = z.looseObject({ id: z.string(), key: z.string() });

beforeAll(async () => {
  const operator = (await seedKey('operator')).key;
  keys.set('operator', operator);
  await good(knock('POST', '/admin/providers', { key: operator, body: { id: 'eth' } }), made);
  const make = async (name: string, body: object) => {
    const { key } = await good(knock('POST', '/admin/keys', { key: operator, body: { name, ...body } }), withSecret);
    keys.set(name, key);
  };
  await make('consumer', {});
  await make('provider', { role: 'provider', provider: 'eth' });
  await make('reader', { role: 'operator', scopes: ['admin:read'] });
  await make('inference', { role: 'operator', scopes: ['inference'] });
});

/**
 * The routes that roles below the operator may call, written out and not read from the router's table, so that a line
 * that grants more fails the test. `login`: for a logged-in person; a consumer's key may not.
 */
const CONSUMERS = [
  ...['/me', '/me/limits', '/me/files', '/me/hours', '/me/requests', '/me/projects', '/usage', '/usage/batches'],
  ...['/requests/:id', '/projects/:id/members', '/projects/:id/members/:user', '/access-requests', '/model-cards'],
  ...['/catalogue', '/statements', '/join-tokens', '/join-tokens/:id', '/provider-rights'],
].map((path) => `get ${path}`);
const LOGINS = [
  ...['post /keys', 'get /keys', 'get /keys/:id', 'patch /keys/:id', 'post /keys/:id/rotate', 'delete /keys/:id'],
  ...['put', 'patch', 'delete'].map((method) => `${method} /projects/:id/members/:user`),
  ...['patch /access-requests/:id', 'delete /provider-rights/:id'],
];
const PROVIDERS = [
  ...['/providers', '/providers/:id', '/nodes', '/nodes/:session'],
  ...['/nodes/history', '/nodes/:session/logs', '/nodes/:session/loads', '/nodes/:session/deployment'],
  '/nodes/:session/telemetry',
]
  .map((path) => `get ${path}`)
  .concat('post /nodes/:session/drain', 'post /nodes/:session/restart')
  .concat('put /nodes/:session/deployment', 'delete /nodes/:session/deployment')
  .concat(['load', 'unload', 'move'].map((verb) => `post /replicas/${verb}`));

const nameOf = ({ method, path }: AdminRoute) => `${method} ${path}`;

test('consumers and providers are let in where these lists say, and nowhere else', () => {
  const names = (role: Role, login: boolean) =>
    ADMIN_ROUTES.filter((one) => one.role === role && (one.login !== undefined) === login).map(nameOf);
  expect(names('consumer', false).sort()).toEqual(
    [
      ...CONSUMERS,
      ...['post /device-logins', 'post /device-logins/machine', 'post /access-requests'],
      ...['post /join-tokens', 'delete /join-tokens/:id'],
    ].sort(),
  );
  expect(names('consumer', true).sort()).toEqual([...LOGINS].sort());
  expect(names('provider', false).sort()).toEqual([...PROVIDERS].sort());
  expect(names('provider', true)).toEqual([]);
});

const path = (text: string) => `/admin${text.replace(/:id(\{.*\})?/, 'nobody')}`;
// An invalid body is refused only after the caller is known, so 400 means that the caller was allowed.
const call = (one: AdminRoute, key: string | undefined) => {
  const body = ['get', 'delete'].includes(one.method) ? undefined : '{';
  return knock(one.method.toUpperCase(), path(one.path), { key, body });
};
/** 404 counts only if it comes from the route itself: the object does not exist, but the address is served. */
async function letIn(response: Response, one: AdminRoute): Promise<boolean> {
  const text = await response.text();
  if (response.status === 404) expect(text).not.toContain(path(one.path));
  return [200, 400, 404].includes(response.status);
}

test.each(ROLES)('the role %s is let in at exactly the routes that are its own', async (role) => {
  for (const one of ADMIN_ROUTES) {
    const allowed = isRoleAtLeast(role, one.role) && (one.login === undefined || role === 'operator');
    const response = await call(one, keys.get(role));
    if (allowed) expect(await letIn(response, one), nameOf(one)).toBe(true);
    else await refusal(response, 403, 'permission_denied');
  }
});

test('no request is admitted without a key, with a join token or with a wrong key', async () => {
  for (const one of ADMIN_ROUTES)
    for (const key of [undefined, `sk-otela-${'x'.repeat(43)}`, `otela-join-${'x'.repeat(43)}`])
      await refusal(call(one, key), 401, 'invalid_api_key');
});

test('an operator whose key is only for reading reads, and one for inference alone does nothing here', async () => {
  for (const one of ADMIN_ROUTES) {
    const response = await call(one, keys.get('reader'));
    if (one.method === 'get') expect(await letIn(response, one), nameOf(one)).toBe(true);
    else await refusal(response, 403, 'permission_denied');
    await refusal(call(one, keys.get('inference')), 403, 'permission_denied');
  }
});

test('a provider creates, sees and revokes only its own join tokens', async () => {
  const operator = keys.get('operator');
  const mine = keys.get('provider');
  const other = await good(
    knock('POST', '/admin/join-tokens', { key: operator, body: { provider: 'psi' } }),
    z.looseObject({ id: z.string() }),
  );
  const token = await good(
    knock('POST', '/admin/join-tokens', { key: mine, body: { cluster: 'alps', max_nodes: 3 } }),
    z.looseObject({ id: z.string(), provider: z.literal('eth'), max_nodes: z.literal(3), nodes: z.literal(0) }),
  );
  await refusal(
    knock('POST', '/admin/join-tokens', { key: mine, body: { provider: 'psi' } }),
    403,
    'permission_denied',
  );
  const list = await (await knock('GET', '/admin/join-tokens', { key: mine })).text();
  expect(list).toContain(token.id);
  expect(list).not.toContain(other.id);
  for (const method of ['GET', 'DELETE']) {
    await refusal(knock(method, `/admin/join-tokens/${other.id}`, { key: mine }), 404, 'not_found');
  }
  await good(knock('DELETE', `/admin/join-tokens/${token.id}`, { key: mine }), made);
  expect(await (await knock('GET', `/admin/join-tokens/${other.id}`, { key: operator })).json()).toMatchObject({
    revoked_at: null,
  });
  expect(await (await knock('GET', '/admin/providers', { key: mine })).json()).toMatchObject({ data: [{ id: 'eth' }] });
  await refusal(knock('GET', '/admin/providers/psi', { key: mine }), 404, 'not_found');
});

test("a key never does more than its user: a demoted operator's keys are demoted too", async () => {
  const operator = keys.get('operator');
  const body = { name: 'Ada', role: 'operator' };
  const user = await good(knock('POST', '/admin/users', { key: operator, body }), made);
  const key = await good(
    knock('POST', '/admin/keys', { key: operator, body: { name: 'k', role: 'operator', user_id: user.id } }),
    withSecret,
  );
  expect((await knock('GET', '/admin/audit', { key: key.key })).status).toBe(200);
  await good(knock('PATCH', `/admin/users/${user.id}`, { key: operator, body: { role: 'consumer' } }), made);
  await refusal(knock('GET', '/admin/audit', { key: key.key }), 403, 'permission_denied');
  await good(knock('PATCH', `/admin/users/${user.id}`, { key: operator, body: { disabled: true } }), made);
  await refusal(knock('GET', '/admin/me', { key: key.key }), 401, 'invalid_api_key');
});

test('the scopes of an operator’s key also decide about the batches of others', async () => {
  const row = { owner: 'project:others', createdBy: 'key_others', createdAt: 1, open: false };
  const summary = { id: 'batch_others', status: 'completed' };
  await database(env)
    .insert(batches)
    .values({ ...row, id: 'batch_others', summary });
  const operator = keys.get('operator');
  const keyWith = async (scopes: string[]) => {
    const body = { name: 'k', role: 'operator', scopes: ['inference', ...scopes] };
    return (await good(knock('POST', '/admin/keys', { key: operator, body }), withSecret)).key;
  };
  const [alone, reader, admin] = [await keyWith([]), await keyWith(['admin:read']), await keyWith(['admin'])];
  await refusal(knock('GET', '/v1/batches?scope=all', { key: alone }), 403, 'permission_denied');
  await refusal(knock('GET', '/v1/batches/batch_others', { key: alone }), 404, 'not_found');
  for (const key of [reader, admin, operator]) {
    const { data } = await good(knock('GET', '/v1/batches?scope=all', { key }), z.object({ data: z.array(made) }));
    expect(data.map(({ id }) => id)).toContain('batch_others');
    expect((await knock('GET', '/v1/batches/batch_others', { key })).status).toBe(200);
  }
  const change = (verb: string, key: string) => knock('POST', `/v1/batches/batch_others/${verb}`, { key });
  for (const verb of ['cancel', 'pause', 'resume'])
    for (const key of [alone, reader]) await refusal(change(verb, key), 404, 'not_found');
  // The batch is found. It has no object, so it cannot be paused.
  expect((await change('pause', admin)).status).not.toBe(404);
});
