/** `/v1/otela/conversations`: what a person keeps, and its protection from others. */
import { env, exports } from 'cloudflare:workers';
import { beforeAll, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { users } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { BOX_MAX_BYTES, BOXES_MAX, ConversationsObject } from '../../../gateway/conversations/conversations-object.ts';
import type { Env } from '../../../gateway/env.ts';
import type { ObjectContext } from '../../../gateway/platform/object-context.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from '../admin/support.ts';
import { runInDurableObject } from '../support/durable.ts';

const PATH = '/v1/otela/conversations';
const KEY = { salt: 'c2FsdA==', check: 'Y2hlY2s=' };
const listSchema = z.object({
  key: z.object({ salt: z.string(), check: z.string() }).nullable(),
  revision: z.number(),
  data: z.array(z.object({ id: z.string(), revision: z.number(), bytes: z.number(), deleted: z.boolean() })),
  bytes: z.number(),
  max_bytes: z.number(),
});

let operator = '';
let ada = '';
let ben = '';
let keyWithoutUser = '';
const space = (conversations_mib: number | null) =>
  good(knock('PATCH', '/admin/settings', { key: operator, body: { conversations_mib } }), z.unknown());

beforeAll(async () => {
  operator = (await seedKey('operator')).key;
  keyWithoutUser = (await seedKey('consumer')).key;
  const row = { email: null, role: 'consumer' as const, provider: null, projectId: null, createdAt: 1, limits: null };
  const none = { groups: null, issuer: null, subject: null, lastLoginAt: null, claimsAt: null, disabledAt: null };
  for (const id of ['user_ada', 'user_ben'])
    await database(env)
      .insert(users)
      .values({ id, name: id, ...row, ...none });
  ada = (await seedKey('consumer', { userId: 'user_ada' })).key;
  ben = (await seedKey('consumer', { userId: 'user_ben' })).key;
});
beforeEach(async () => {
  await space(1);
  for (const key of [ada, ben]) {
    await knock('DELETE', PATH, { key });
    await begin(key);
  }
});

const begin = (key: string) => good(knock('PUT', `${PATH}/key`, { key, body: KEY }), z.unknown());

const list = (key: string, after = 0) => good(knock('GET', `${PATH}?after=${after}`, { key }), listSchema);
function put(id: string, box: string | Uint8Array<ArrayBuffer>, base?: number, key = ada): Promise<Response> {
  const headers: Record<string, string> = { authorization: `Bearer ${key}` };
  if (base !== undefined) headers['if-match'] = `"${base}"`;
  return exports.default.fetch(new Request(`https://gateway.test${PATH}/${id}`, { method: 'PUT', headers, body: box }));
}
const revisionOf = async (answer: Promise<Response>) =>
  (await good(answer, z.object({ revision: z.number() }))).revision;

test('a person finds on another computer what was kept, byte for byte, and only what changed since', async () => {
  await knock('DELETE', PATH, { key: ada });
  expect(await list(ada)).toEqual({ key: null, revision: 0, data: [], bytes: 0, max_bytes: 1_048_576 });
  await begin(ada);
  const box = crypto.getRandomValues(new Uint8Array(1_000));
  const first = await revisionOf(put('one', box));
  const second = await revisionOf(put('two', 'other'));
  expect(await list(ada)).toMatchObject({ key: KEY, revision: second, bytes: 1_005 });
  expect((await list(ada, first)).data).toEqual([{ id: 'two', revision: second, bytes: 5, deleted: false }]);
  const read = await knock('GET', `${PATH}/one`, { key: ada });
  expect([read.headers.get('etag'), read.headers.get('cache-control')]).toEqual([`"${first}"`, 'no-store']);
  expect(new Uint8Array(await read.arrayBuffer())).toEqual(box);
});

test('a change of an old revision is refused, and changes nothing', async () => {
  const first = await revisionOf(put('one', 'a'));
  const second = await revisionOf(put('one', 'b', first));
  await refusal(put('one', 'c', first), 409, 'conflict');
  await refusal(put('one', 'c'), 409, 'conflict');
  await refusal(put('new', 'c', 7), 409, 'conflict');
  const read = await knock('GET', `${PATH}/one`, { key: ada });
  expect(new TextDecoder().decode(await read.arrayBuffer())).toBe('b');
  expect((await list(ada)).revision).toBe(second);
  await refusal(
    knock('PUT', `${PATH}/one`, { key: ada, body: 'x', headers: { 'if-match': '*' } }),
    400,
    'invalid_request',
  );
});

test('another computer learns of a deletion, and the conversation can be kept again', async () => {
  const first = await revisionOf(put('one', 'a'));
  const gone = await revisionOf(knock('DELETE', `${PATH}/one`, { key: ada }));
  expect(await list(ada, first)).toMatchObject({
    data: [{ id: 'one', revision: gone, bytes: 0, deleted: true }],
    bytes: 0,
  });
  await refusal(knock('GET', `${PATH}/one`, { key: ada }), 404, 'not_found');
  await refusal(knock('DELETE', `${PATH}/one`, { key: ada }), 404, 'not_found');
  await refusal(put('one', 'b', first), 409, 'conflict');
  expect(await revisionOf(put('one', 'b'))).toBeGreaterThan(gone);
});

test('other people cannot read, change or delete them, and a key without a person keeps none', async () => {
  const first = await revisionOf(put('one', 'of Ada'));
  expect((await list(ben)).data).toEqual([]);
  await refusal(knock('GET', `${PATH}/one`, { key: ben }), 404, 'not_found');
  await refusal(put('one', 'of Ben', first, ben), 409, 'conflict');
  await knock('DELETE', PATH, { key: ben });
  expect((await list(ada)).data).toHaveLength(1);
  for (const key of [keyWithoutUser, operator]) await refusal(knock('GET', PATH, { key }), 403, 'permission_denied');
  expect((await knock('GET', PATH)).status).toBe(401);
});

test('a passphrase is chosen once, and deleting everything deletes it, too', async () => {
  await refusal(knock('PUT', `${PATH}/key`, { key: ada, body: { ...KEY, salt: 'bmV3' } }), 409, 'conflict');
  await put('one', 'a');
  expect((await knock('DELETE', PATH, { key: ada })).status).toBe(200);
  // A page that is still open writes nothing.
  await refusal(put('one', 'b'), 409, 'conflict');
  expect(await list(ada)).toMatchObject({ key: null, data: [], revision: 0 });
  for (const body of [{ ...KEY, salt: '<' }, { ...KEY, check: 'x'.repeat(257) }, { salt: 'YQ==' }])
    await refusal(knock('PUT', `${PATH}/key`, { key: ada, body }), 400, 'invalid_request');
});

test('the size of one conversation, and of all of a person, is limited', async () => {
  await refusal(put('one', new Uint8Array(BOX_MAX_BYTES + 1)), 413, 'request_too_large');
  await refusal(put('one', ''), 400, 'invalid_request');
  await refusal(put('one', new Uint8Array(1_048_577)), 429, 'insufficient_quota');
  const first = await revisionOf(put('one', new Uint8Array(1_000_000)));
  await refusal(put('two', new Uint8Array(100_000)), 429, 'insufficient_quota');
  // A larger version takes the place of the former one.
  await revisionOf(put('one', new Uint8Array(1_048_576), first));
  await refusal(put('a'.repeat(65), 'a'), 400, 'invalid_request');
  await refusal(put('a%2Fb', 'a'), 400, 'invalid_request');
});

test('the number of conversations and of remembered deletions is limited', async () => {
  const counted = await runInDurableObject(env.CONVERSATIONS.getByName('many'), async (_, { storage }) => {
    let now = 1_000;
    let alarmAt: number | null = null;
    const ctx = {
      name: 'many',
      storage: {
        ...{ sql: storage.sql, kv: storage.kv, getAlarm: async () => alarmAt },
        setAlarm: async (at: number) => {
          alarmAt = at;
        },
      },
      clock: { now: () => now },
    } as unknown as ObjectContext;
    const kept = new ConversationsObject(ctx, {} as unknown as Env);
    kept.begin('key');
    const box = new Uint8Array(1);
    const write = (id: string) => kept.write(id, 0, box, 10_000);
    for (let n = 0; n < BOXES_MAX; n++) write(`c${n}`);
    const full = write('more');
    await kept.remove('c0');
    const again = write('more');
    now += 91 * 86_400_000;
    await kept.alarm();
    return { full, again, deleted: kept.list(0).conversations.filter(({ deleted }) => deleted).length };
  });
  expect(counted).toEqual({ full: 'full', again: { revision: expect.any(Number) }, deleted: 0 });
});

test('without space for conversations there are none, but a person can still delete them', async () => {
  await revisionOf(put('one', 'a'));
  await space(null);
  await refusal(knock('GET', PATH, { key: ada }), 404, 'not_found');
  await refusal(put('two', 'b'), 404, 'not_found');
  expect((await knock('DELETE', PATH, { key: ada })).status).toBe(200);
  await space(1);
  expect((await list(ada)).data).toEqual([]);
});

const shareSchema = z.object({ id: z.string(), owner: z.string(), expires_at: z.string() });
const sharesSchema = z.object({
  data: z.array(z.object({ id: z.string(), bytes: z.number(), expires_at: z.string() })),
});
const share = (id: string, box: string | Uint8Array<ArrayBuffer>, query = '', key = ada) =>
  put(`shares/${id}${query}`, box, undefined, key);
const shares = async (key = ada) => (await good(knock('GET', `${PATH}/shares`, { key }), sharesSchema)).data;

test('everybody here reads a shared conversation by its link, until its owner deletes it', async () => {
  const { owner, expires_at } = await good(share('s1', 'sealed', '?days=2'), shareSchema);
  expect(owner).toBe('user_ada');
  expect(Date.parse(expires_at) - Date.now()).toBeGreaterThan(1.9 * 86_400_000);
  const read = await knock('GET', `${PATH}/shares/user_ada/s1`, { key: ben });
  expect([await read.text(), read.headers.get('cache-control')]).toEqual(['sealed', 'no-store']);
  expect(await shares()).toEqual([{ id: 's1', bytes: 6, expires_at }]);
  expect(await shares(ben)).toEqual([]);
  // It is not among the conversations of its owner, and another person cannot delete it.
  expect((await list(ada)).data).toEqual([]);
  await refusal(knock('DELETE', `${PATH}/shares/s1`, { key: ben }), 404, 'not_found');
  await good(knock('DELETE', `${PATH}/shares/s1`, { key: ada }), z.unknown());
  await refusal(knock('GET', `${PATH}/shares/user_ada/s1`, { key: ben }), 404, 'not_found');
});

test('a share is read only with an account, is never replaced, and makes no object of a made-up name', async () => {
  await good(share('s1', 'sealed'), shareSchema);
  await refusal(share('s1', 'other'), 409, 'conflict');
  const anonymous = exports.default.fetch(new Request(`https://gateway.test${PATH}/shares/user_ada/s1`));
  await refusal(anonymous, 401, 'invalid_api_key');
  for (const owner of ['user_none', 'many', 'a'.repeat(2_000), '%2e%2e', "'; DROP TABLE shares"])
    await refusal(knock('GET', `${PATH}/shares/${owner}/s1`, { key: ben }), 404, 'not_found');
  await refusal(knock('GET', `${PATH}/shares/user_ada/s%2F1`, { key: ben }), 400, 'invalid_request');
  for (const days of ['0', '366', '1.5', 'x', '-1'])
    await refusal(share('s2', 'a', `?days=${days}`), 400, 'invalid_request');
  await refusal(share('s2', ''), 400, 'invalid_request');
  await refusal(share('s2', 'a', '', keyWithoutUser), 403, 'permission_denied');
});

test('shares take the space of their owner, end by themselves, and are deleted with everything', async () => {
  await good(share('s1', new Uint8Array(1_000_000)), shareSchema);
  await refusal(put('one', new Uint8Array(100_000)), 429, 'insufficient_quota');
  await refusal(share('s2', new Uint8Array(100_000)), 429, 'insufficient_quota');
  expect((await list(ada)).bytes).toBe(1_000_000);
  const ended = await runInDurableObject(env.CONVERSATIONS.getByName('user_ada'), async (_, { storage }) => {
    storage.sql.exec('UPDATE shares SET expires_at = 1');
    return (await storage.getAlarm()) !== null;
  });
  expect(ended).toBe(true);
  await refusal(knock('GET', `${PATH}/shares/user_ada/s1`, { key: ben }), 404, 'not_found');
  await good(share('s2', new Uint8Array(100_000)), shareSchema);
  expect((await shares()).map(({ id }) => id)).toEqual(['s2']);
  await space(null);
  await refusal(knock('GET', `${PATH}/shares/user_ada/s2`, { key: ben }), 404, 'not_found');
  await good(knock('DELETE', PATH, { key: ada }), z.unknown());
  await space(1);
  expect(await shares()).toEqual([]);
});

test('deletions are forgotten in time, although a share ends later', async () => {
  await good(share('s1', 'sealed', '?days=365'), shareSchema);
  await revisionOf(put('one', 'a'));
  await good(knock('DELETE', `${PATH}/one`, { key: ada }), z.unknown());
  const alarm = await runInDurableObject(env.CONVERSATIONS.getByName('user_ada'), (_, { storage }) =>
    storage.getAlarm(),
  );
  expect(alarm).toBeLessThanOrEqual(Date.now() + 86_400_000);
});

test('the deletion of a person deletes them', async () => {
  await revisionOf(put('one', 'a', undefined, ben));
  await good(knock('DELETE', '/admin/users/user_ben', { key: operator }), z.unknown());
  const left = await runInDurableObject(env.CONVERSATIONS.getByName('user_ben'), (_, { storage }) =>
    storage.sql.exec('SELECT id FROM boxes').toArray(),
  );
  expect(left).toEqual([]);
});
