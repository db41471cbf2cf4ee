import { env } from 'cloudflare:workers';
import { gt, isNull, or } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { openSession, SESSION_COOKIE } from '../../../gateway/accounts/login/login-session.ts';
import { batches, files, functionSecrets } from '../../../gateway/files/file-tables.ts';
import { usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { seedKey } from '../accounts/seed.ts';
import { usageRow } from '../support/usage-row.ts';
import { good, knock, refusal } from './support.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW = Date.now();
/** Further back than one call reaches, and a moment ago. */
const TIMES = [0, 1, 2, 3, 5, 8, 13].map((days) => NOW - days * DAY_MS);
const WORDS = ['Ada Lovelace', 'ada@example.org', 'subject-of-ada', "ada's laptop", 'a thesis on engines', 'diary.txt'];

let operator = '';
const made = z.looseObject({ id: z.string() });
const withKey = z.looseObject({ id: z.string(), key: z.string() });
const step = z.object({ deleted: z.literal(true), days_left: z.number() });
let ada: { id: string; keyId: string; key: string };
let bob: string;

const ask = (method: string, path: string, body?: unknown) => knock(method, `/admin${path}`, { key: operator, body });

beforeAll(async () => {
  operator = (await seedKey('operator')).key;
  const person = { name: WORDS[0], email: WORDS[1], issuer: 'https://login.example.org', subject: WORDS[2] };
  const user = await good(ask('POST', '/users', person), made);
  const key = await good(ask('POST', '/keys', { name: WORDS[3], user_id: user.id }), withKey);
  ada = { id: user.id, keyId: key.id, key: key.key };
  bob = (await good(ask('POST', '/users', { name: 'Bob' }), made)).id;
  const asks = async (who: string, reason: string | undefined) => {
    const headers = {
      cookie: `${SESSION_COOKIE}=${await openSession(env, who, NOW)}`,
      'sec-fetch-site': 'same-origin',
    };
    return good(knock('POST', '/admin/access-requests', { headers, body: { model: 'm', reason } }), made);
  };
  const { id } = await asks(ada.id, WORDS[4]);
  await good(ask('PATCH', `/access-requests/${id}`, { status: 'refused' }), made);
  // It was decided long ago: the next request of any user removes it.
  await env.DB.prepare('UPDATE access_requests SET created_at = ? WHERE id = ?')
    .bind(NOW - 100 * DAY_MS, id)
    .run();
  await asks(bob, 'mine');
  const file = { purpose: 'user_data', filename: `${WORDS[5]}`, bytes: 1, createdAt: NOW, expiresAt: null };
  const owners = [`user:${ada.id}`, `key:${ada.keyId}`];
  const rows = owners.map((owner, n) => ({ ...file, id: `file-${n}`, owner, createdBy: ada.keyId }));
  const db = database(env);
  await db
    .insert(files)
    .values([...rows, { ...file, id: 'file-b', owner: `user:${bob}`, filename: 'b', createdBy: 'b' }]);
  const secret = { name: 'HF_TOKEN', sealed: 'x', createdBy: ada.keyId, createdAt: NOW };
  await db.insert(functionSecrets).values([...owners, `user:${bob}`].map((owner) => ({ ...secret, owner })));
  const batch = { owner: owners[0] ?? '', createdBy: ada.keyId, createdAt: NOW, open: false };
  await db.insert(batches).values({ ...batch, id: 'batch_1', summary: { metadata: { about: WORDS[5] } } });
  // A batch that ended; the account store has not learned its end, if it ever had the batch.
  const spec = {
    owner: batch.owner,
    account: { ...BOOTSTRAP_ACCOUNT, keyId: ada.keyId, userId: ada.id },
    windowS: 86_400,
  };
  await env.BATCH.getByName('batch_2').create({
    ...spec,
    id: 'batch_2',
    endpoint: '/v1/chat/completions',
    inputFileId: 'file-none',
    inputExists: false,
    metadata: { about: WORDS[5] ?? '' },
    outputExpiresS: null,
  });
  await db.insert(batches).values({ ...batch, id: 'batch_2', open: true, summary: { metadata: { about: WORDS[5] } } });
  for (const [n, time] of TIMES.entries()) {
    const rows = [ada.id, bob].map((who, m) =>
      usageRow(10 * n + m, {
        at: time,
        user: who,
        key: who === bob ? 'key_bob' : ada.keyId,
        project: 'proj_1',
        traced: true,
      }),
    );
    await env.USAGE.getByName(usageShardOf(time)).add(rows);
  }
});

const totals = z.object({ data: z.array(z.looseObject({ requests: z.number(), prompt_tokens: z.number() })) });
const from = new Date(NOW - 20 * DAY_MS).toISOString().slice(0, 10);
const usage = async (more: string) => (await good(ask('GET', `/usage?from=${from}&${more}`), totals)).data;
const records = async (user: string) => {
  const pages = await Promise.all(TIMES.map((time) => env.USAGE.getByName(usageShardOf(time)).page(0, 100, false)));
  return pages.flat().filter(({ row }) => row.user === user).length;
};

test('a person is gone from accounts, audit and records, sums stay, and others keep theirs', async () => {
  expect(await records(ada.id)).toBe(TIMES.length);
  const days: number[] = [];
  for (let left = 1; left > 0; ) {
    left = (await good(ask('DELETE', `/users/${ada.id}`), step)).days_left;
    days.push(left);
    expect(days.length).toBeLessThan(10);
  }
  // Hours that D1 did not know yet are asked too; the rest follows as their sums arrive.
  for (const time of TIMES) await env.USAGE.getByName(usageShardOf(time)).forget('nobody');
  for (let left = 1; left > 0; ) left = (await good(ask('DELETE', `/users/${ada.id}`), step)).days_left;

  expect(await records(ada.id)).toBe(0);
  expect(await records(bob)).toBe(TIMES.length);
  expect(await usage(`group_by=user&user=${ada.id}`)).toEqual([]);
  expect(await usage(`group_by=key&key=${ada.keyId}`)).toEqual([]);
  expect(await usage(`group_by=user&user=${bob}`)).toMatchObject([{ requests: TIMES.length }]);
  const sum = { requests: 2 * TIMES.length, prompt_tokens: 20 * TIMES.length };
  expect(await usage('group_by=project&project=proj_1')).toMatchObject([sum]);

  const left = await database(env)
    .select()
    .from(files)
    .where(or(isNull(files.expiresAt), gt(files.expiresAt, Date.now())));
  expect(
    left.map(({ id }) => id),
    'files that the next sweep leaves',
  ).toEqual(['file-b']);

  expect((await database(env).select().from(functionSecrets)).map(({ owner }) => owner)).toEqual([`user:${bob}`]);
  expect(await database(env).select().from(batches)).toEqual([]);
  const forgotten = env.BATCH.getByName('batch_2');
  expect(await forgotten.show(), 'what the batch itself keeps').toBeNull();
  const lease = { node: 'n', chunk: 0, epoch: 1 };
  expect(await forgotten.renewal(lease), 'what a node that runs its lines hears').toEqual({
    leased: false,
    stop: true,
  });
  expect(await forgotten.commit(lease, [], 'lab')).toMatchObject({ leased: false, stop: true });
  await forgotten.release(lease);

  await refusal(knock('GET', '/admin/me', { key: ada.key }), 401, 'invalid_api_key');
  const shown = await good(
    ask('GET', `/users/${ada.id}`),
    z.looseObject({ name: z.string(), disabled_at: z.string() }),
  );
  expect(shown).toMatchObject({ name: 'deleted', email: null, issuer: null, subject: null });
  const audit = await (await ask('GET', '/audit')).text();
  for (const word of WORDS) expect(audit).not.toContain(word);
});

test('no table of the account store contains a trace of the user', async () => {
  const tables = await env.DB.prepare(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_%' ESCAPE '\\'",
  ).all<{ name: string }>();
  expect(tables.results.length).toBeGreaterThan(8);
  for (const { name } of tables.results) {
    const { results } = await env.DB.prepare(`SELECT * FROM "${name}"`).all();
    for (const word of [...WORDS, ada.key.slice(0, 14)])
      expect(`${name}: ${JSON.stringify(results)}`).not.toContain(word);
  }
  const { data } = await good(
    ask('GET', '/audit'),
    z.object({ data: z.array(z.looseObject({ action: z.string(), target: z.string() })) }),
  );
  expect(data).toContainEqual(expect.objectContaining({ action: 'user.erase', target: ada.id }));
});

test('repeating it is safe, and only an existing user is deleted', async () => {
  expect(await good(ask('DELETE', `/users/${ada.id}`), step)).toMatchObject({ days_left: 0 });
  await refusal(ask('DELETE', '/users/user_nobody'), 404, 'not_found');
});

test('a user with the name that deleted users get is deleted too', async () => {
  const person = { name: 'deleted', email: 'eve@example.org', issuer: 'https://login.example.org', subject: 'eve' };
  const { id } = await good(ask('POST', '/users', person), made);
  await good(ask('PATCH', `/users/${id}`, { disabled: true }), made);
  await good(ask('PATCH', `/users/${id}`, { email: null }), made);
  expect(await good(ask('DELETE', `/users/${id}`), step)).toMatchObject({ days_left: 0 });
  expect(await good(ask('GET', `/users/${id}`), z.looseObject({}))).toMatchObject({ issuer: null, subject: null });
  expect(await (await ask('GET', `/audit?object=${id}`)).text()).not.toContain('eve');
});
