import { beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { atLeast } from '../../../gateway/accounts/account.ts';
import { ROLES, type Role } from '../../../gateway/accounts/schema.ts';
import { ADMIN_ROUTES } from '../../../gateway/admin/routes.ts';
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

/** What somebody may do by the table: a key of somebody who is no operator cannot make keys. */
function allowed(role: Role, { role: lowest, login }: (typeof ADMIN_ROUTES)[number]): boolean {
  return atLeast(role, lowest) && (login === undefined || role === 'operator');
}

const path = (text: string) => `/admin${text.replace(/:id(\{.*\})?/, 'nobody')}`;

describe.each(ADMIN_ROUTES.map((one) => [`${one.method.toUpperCase()} ${one.path}`, one] as const))('%s', (_, one) => {
  // An empty body is refused only after the caller is known: 400 says that they were let in.
  const call = (key: string | undefined) => {
    const body = ['get', 'delete'].includes(one.method) ? undefined : '{';
    return knock(one.method.toUpperCase(), path(one.path), { key, body });
  };

  test.each(ROLES)('the role %s is let in exactly where the table says', async (role) => {
    const response = await call(keys.get(role));
    const text = await response.text();
    if (allowed(role, one)) expect([200, 400, 404], text).toContain(response.status);
    else expect([response.status, JSON.parse(text).error.code]).toEqual([403, 'permission_denied']);
  });

  test('nobody is let in without a key, with a join token or with a wrong key', async () => {
    await refusal(call(undefined), 401, 'invalid_api_key');
    await refusal(call(`sk-otela-${'x'.repeat(43)}`), 401, 'invalid_api_key');
    await refusal(call(`otela-join-${'x'.repeat(43)}`), 401, 'invalid_api_key');
  });

  test('an operator whose key is only for reading reads, and one for inference alone does nothing here', async () => {
    const response = await call(keys.get('reader'));
    if (one.method === 'get') expect([200, 400, 404]).toContain(response.status);
    else await refusal(response, 403, 'permission_denied');
    await refusal(call(keys.get('inference')), 403, 'permission_denied');
  });
});

test('a provider makes, sees and revokes join tokens of its own alone', async () => {
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
  const said = await refusal(knock('GET', '/admin/me', { key: key.key }), 401, 'invalid_api_key');
  expect(said.message).toContain('disabled');
});
