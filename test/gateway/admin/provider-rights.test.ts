/** A user contributes nodes only as far as an operator or the provider granted it. */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { users } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { readJoinGrant } from '../../../gateway/accounts/join-token-grant.ts';
import { openSession, SESSION_COOKIE } from '../../../gateway/accounts/login/login-session.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

const DAY_MS = 86_400_000;
const inDays = (days: number) => new Date(Date.now() + days * DAY_MS).toISOString();
const idSchema = z.looseObject({ id: z.string() });
const tokenSchema = z.looseObject({ id: z.string(), token: z.string(), max_nodes: z.number(), expires_at: z.string() });
const rightsSchema = z.object({ data: z.array(z.looseObject({ id: z.string() })) });

let names = 0;

/** A consumer with a key. */
async function consumer() {
  const id = `user_rights${++names}`;
  await database(env).insert(users).values({ id, name: id, role: 'consumer', createdAt: Date.now() });
  const { key } = await seedKey('consumer', { userId: id });
  return { id, ask: (method: string, path: string, body?: object) => knock(method, `/admin${path}`, { key, body }) };
}

async function setUp() {
  const operator = (await seedKey('operator')).key;
  const asOperator = (method: string, path: string, body?: object) =>
    knock(method, `/admin${path}`, { key: operator, body });
  const provider = `lab${++names}`;
  await good(asOperator('POST', '/providers', { id: provider, name: provider }), idSchema);
  const ada = await consumer();
  const granted = async (more: object = {}) => {
    const wanted = { provider, cluster: 'alps', max_nodes: 4, expires_at: inDays(30) };
    const { id } = await good(ada.ask('POST', '/access-requests', wanted), idSchema);
    await good(asOperator('PATCH', `/access-requests/${id}`, { status: 'approved', ...more }), idSchema);
  };
  const token = (body: object = {}) => ada.ask('POST', '/join-tokens', { provider, cluster: 'alps', ...body });
  return { asOperator, provider, ada, granted, token };
}

test('without a right there is no token, and a request alone gives none', async () => {
  const { provider, ada, token } = await setUp();
  await refusal(token(), 403, 'permission_denied');
  await good(ada.ask('POST', '/access-requests', { provider, cluster: 'alps' }), idSchema);
  await refusal(token(), 403, 'permission_denied');
});

test('a right gives tokens of its cluster alone, until its end and for its nodes together', async () => {
  const { ada, granted, token, provider } = await setUp();
  await granted();
  const first = await good(token({ max_nodes: 3 }), tokenSchema);
  expect(Date.parse(first.expires_at)).toBeLessThanOrEqual(Date.now() + 30 * DAY_MS);
  await refusal(token({ max_nodes: 2 }), 422, 'unprocessable_content');
  const second = await good(token({ max_nodes: 1, expires_at: inDays(300) }), tokenSchema);
  expect(Date.parse(second.expires_at)).toBeLessThanOrEqual(Date.now() + 30 * DAY_MS);
  await refusal(token({ max_nodes: 1 }), 422, 'unprocessable_content');
  await refusal(token({ cluster: 'euler' }), 403, 'permission_denied');
  await refusal(token({ cluster: null }), 403, 'permission_denied');
  await refusal(
    ada.ask('POST', '/join-tokens', { provider: `${provider}x`, cluster: 'alps' }),
    403,
    'permission_denied',
  );
  await good(ada.ask('DELETE', `/join-tokens/${first.id}`), idSchema);
  await good(token({ max_nodes: 3 }), tokenSchema);
  const { data } = await good(ada.ask('GET', '/join-tokens'), rightsSchema);
  expect(data).toHaveLength(3);
  // It is a right to contribute, and nothing else.
  for (const path of ['/nodes', '/providers', '/users']) await refusal(ada.ask('GET', path), 403, 'permission_denied');
});

test('of tokens that are too many together only some are created', async () => {
  const { granted, token } = await setUp();
  await granted();
  const answers = await Promise.all([1, 2, 3, 4].map(() => token({ max_nodes: 2 })));
  for (const answer of answers) await answer.text();
  expect(answers.filter(({ status }) => status === 201)).toHaveLength(2);
});

test('the decision may set cluster, nodes and end, within bounds', async () => {
  const { ada, asOperator, provider, token } = await setUp();
  const { id } = await good(ada.ask('POST', '/access-requests', { provider }), idSchema);
  const approve = (more: object) => asOperator('PATCH', `/access-requests/${id}`, { status: 'approved', ...more });
  await refusal(approve({}), 422, 'unprocessable_content');
  await refusal(approve({ cluster: 'alps', expires_at: inDays(500) }), 422, 'unprocessable_content');
  await refusal(approve({ cluster: 'alps', expires_at: inDays(-1) }), 422, 'unprocessable_content');
  await good(approve({ cluster: 'alps', max_nodes: 1 }), idSchema);
  await refusal(token({ max_nodes: 2 }), 422, 'unprocessable_content');
  expect((await good(token(), tokenSchema)).max_nodes).toBe(1);
});

test('a revoked right takes its tokens along, and other users see none of it', async () => {
  const { ada, asOperator, granted, token } = await setUp();
  await granted();
  const { id } = await good(token(), tokenSchema);
  const [right] = (await good(ada.ask('GET', '/provider-rights'), rightsSchema)).data;
  const other = await consumer();
  expect((await good(other.ask('GET', '/provider-rights'), rightsSchema)).data).toEqual([]);
  expect((await good(other.ask('GET', '/join-tokens'), rightsSchema)).data).toEqual([]);
  await refusal(other.ask('DELETE', `/join-tokens/${id}`), 404, 'not_found');
  await good(asOperator('DELETE', `/provider-rights/${right?.id}`), z.looseObject({ revoked_at: z.string() }));
  await good(ada.ask('GET', `/join-tokens/${id}`), z.looseObject({ revoked_at: z.string() }));
  await refusal(token(), 403, 'permission_denied');
});

test('agents do not join with the token of a user that left', async () => {
  const { ada, asOperator, granted, token } = await setUp();
  await granted();
  const { token: secret } = await good(token(), tokenSchema);
  expect((await readJoinGrant(env, secret, 'alps', Date.now())).cluster).toBe('alps');
  await expect(readJoinGrant(env, secret, 'euler', Date.now())).rejects.toMatchObject({ code: 'permission_denied' });
  await good(asOperator('PATCH', `/users/${ada.id}`, { disabled: true }), idSchema);
  await expect(readJoinGrant(env, secret, 'alps', Date.now())).rejects.toMatchObject({ code: 'invalid_api_key' });
});

test('users with the role of the provider grant its rights, and no others', async () => {
  const { ada, provider, asOperator, token } = await setUp();
  /** A logged-in user with the role provider. */
  const manager = async (of: string) => {
    const { id } = await good(asOperator('POST', '/users', { name: of, role: 'provider', provider: of }), idSchema);
    const headers = {
      cookie: `${SESSION_COOKIE}=${await openSession(env, id, Date.now())}`,
      'sec-fetch-site': 'same-origin',
    };
    return (one: string) => knock('PATCH', `/admin/access-requests/${one}`, { headers, body: { status: 'approved' } });
  };
  await good(asOperator('POST', '/providers', { id: 'elsewhere', name: 'elsewhere' }), idSchema);
  const { id } = await good(ada.ask('POST', '/access-requests', { provider, cluster: 'alps' }), idSchema);
  await refusal((await manager('elsewhere'))(id), 404, 'not_found');
  await refusal(token(), 403, 'permission_denied');
  await good((await manager(provider))(id), idSchema);
  await good(token(), tokenSchema);
  await refusal(
    ada.ask('POST', '/access-requests', { project_id: 'p', cluster: 'alps' }),
    422,
    'unprocessable_content',
  );
});
