import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { apiKeys, auditLog, users } from '../../../gateway/accounts/account-tables.ts';
import { authenticate, authenticateUncached } from '../../../gateway/accounts/authenticate.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { type GatewaySettings, NO_SETTINGS } from '../../../gateway/accounts/gateway-settings.ts';
import { installationSecret } from '../../../gateway/accounts/installation-secret.ts';
import { openSession, SESSION_COOKIE, sessionAccount } from '../../../gateway/accounts/login/login-session.ts';
import { KEY_PREFIX, newSecret, sha256Hex } from '../../../gateway/accounts/secrets.ts';
import { seedKey, watchedDb, withKey } from './seed.ts';

beforeAll(async () => {
  await installationSecret(env);
});

const NOBODY: GatewaySettings = { ...NO_SETTINGS, known: true };
const MINUTE_MS = 60_000;
const attempt = async (...args: Parameters<typeof authenticate>) => authenticate(...args);

test('a key is looked up once and then known without a promise, for ten minutes', async () => {
  const { id, key } = await seedKey('consumer');
  const { DB, queries } = watchedDb(() => false);
  const now = Date.now();
  expect(await authenticate({ DB }, withKey(key), NOBODY, now)).toMatchObject({ keyId: id, role: 'consumer' });
  expect(authenticate({ DB }, withKey(key), NOBODY, now + 9 * MINUTE_MS)).toMatchObject({ keyId: id });
  expect(queries()).toBe(1);
  await authenticate({ DB }, withKey(key), NOBODY, now + 11 * MINUTE_MS);
  expect(queries()).toBe(2);
});

test('x-api-key is as good as a bearer, and a bearer is spelt in any case', async () => {
  const { id, key } = await seedKey('consumer');
  for (const headers of [
    { 'x-api-key': key },
    { authorization: `bearer ${key}` },
    { authorization: `BEARER  ${key} ` },
  ]) {
    const account = await authenticate(env, new Request('https://g.test/', { headers }), NOBODY, Date.now());
    expect(account.keyId).toBe(id);
  }
});

test('a change in the snapshot makes the isolate ask again, once; the cache alone would go on for ten minutes', async () => {
  const { id, key } = await seedKey('consumer');
  const { DB, queries } = watchedDb(() => false);
  const now = Date.now();
  await authenticate({ DB }, withKey(key), NOBODY, now);
  const change = { at: now, actor: 'bootstrap', action: 'key.revoke', object: id, before: null, after: null };
  const [line] = await database(env).insert(auditLog).values(change).returning();
  const settings = { ...NOBODY, changed: { [id]: line?.id ?? 0 } };
  expect(await authenticate({ DB }, withKey(key), settings, now)).toMatchObject({ keyId: id });
  expect(authenticate({ DB }, withKey(key), settings, now)).toMatchObject({ keyId: id });
  expect(queries()).toBe(2);
  await database(env).update(apiKeys).set({ revokedAt: now }).where(eq(apiKeys.id, id));
  const [next] = await database(env).insert(auditLog).values(change).returning();
  const revoked = { ...NOBODY, changed: { [id]: next?.id ?? 0 } };
  await expect(attempt({ DB }, withKey(key), revoked, now)).rejects.toMatchObject({
    status: 401,
    code: 'invalid_api_key',
  });
  // If more changed than a snapshot holds, keys that were read before it are read again.
  const other = await seedKey('consumer');
  await authenticate({ DB }, withKey(other.key), NOBODY, now);
  const before = queries();
  await authenticate({ DB }, withKey(other.key), { ...NOBODY, changedSince: (next?.id ?? 0) + 1 }, now);
  expect(queries()).toBe(before + 1);
});

test('a changed key is not believed in while D1 is down: 503, neither 401 nor in', async () => {
  const { id, key } = await seedKey('consumer');
  let down = false;
  const { DB } = watchedDb(() => down);
  await authenticate({ DB }, withKey(key), NOBODY, Date.now());
  down = true;
  const changed = { ...NOBODY, changed: { [id]: Number.MAX_SAFE_INTEGER } };
  await expect(attempt({ DB }, withKey(key), changed, Date.now())).rejects.toMatchObject({ status: 503 });
});

test('a key is over at its expiry also where it is cached', async () => {
  const { id, key } = await seedKey('consumer');
  const now = Date.now();
  await database(env)
    .update(apiKeys)
    .set({ expiresAt: now + 1_000 })
    .where(eq(apiKeys.id, id));
  expect(await authenticate(env, withKey(key), NOBODY, now)).toMatchObject({ keyId: id });
  expect(authenticate(env, withKey(key), NOBODY, now + 999)).toMatchObject({ keyId: id });
  await expect(attempt(env, withKey(key), NOBODY, now + 1_000)).rejects.toMatchObject({
    status: 401,
    code: 'invalid_api_key',
  });
});

test('a key revoked in D1 is refused even by an isolate that never saw a snapshot', async () => {
  const { id, key } = await seedKey('consumer');
  await database(env).update(apiKeys).set({ revokedAt: Date.now() }).where(eq(apiKeys.id, id));
  await expect(attempt(env, withKey(key), NOBODY, Date.now())).rejects.toMatchObject({ status: 401 });
});

test('known keys work for MAX_STALE_MS while the store is away, unless they changed or expired, and few requests wait', async () => {
  const hour = 60 * MINUTE_MS;
  const now = Date.now();
  const [plain, ending] = [await seedKey('consumer'), await seedKey('consumer')];
  await database(env)
    .update(apiKeys)
    .set({ expiresAt: now + 2 * hour })
    .where(eq(apiKeys.id, ending.id));
  for (const { key } of [plain, ending]) await authenticate(env, withKey(key), NOBODY, now);
  let asked = 0;
  const { DB } = watchedDb(() => {
    asked++;
    return true;
  });
  const away = { DB, MAX_STALE_MS: 24 * hour };
  for (const ms of [hour, hour + 1_000]) {
    expect(await attempt(away, withKey(plain.key), NOBODY, now + ms)).toMatchObject({ keyId: plain.id });
    expect(await attempt(away, withKey(ending.key), NOBODY, now + ms)).toMatchObject({ keyId: ending.id });
  }
  expect(asked).toBe(1);
  const unavailable = { status: 503 };
  await expect(attempt({ DB }, withKey(plain.key), NOBODY, now + hour)).rejects.toMatchObject(unavailable);
  await expect(attempt(away, withKey(ending.key), NOBODY, now + 3 * hour)).rejects.toMatchObject(unavailable);
  await expect(attempt(away, withKey(plain.key), NOBODY, now + 25 * hour)).rejects.toMatchObject(unavailable);
  const changed = { ...NOBODY, changed: { [plain.id]: Number.MAX_SAFE_INTEGER } };
  await expect(attempt(away, withKey(plain.key), changed, now + 4 * hour)).rejects.toMatchObject(unavailable);
});

test('while D1 is down unknown keys get 503 and known ones go on working', async () => {
  const known = await seedKey('consumer');
  const fresh = await seedKey('consumer');
  let down = false;
  const { DB } = watchedDb(() => down);
  const now = Date.now();
  await authenticate({ DB }, withKey(known.key), NOBODY, now);
  down = true;
  await expect(attempt({ DB }, withKey(fresh.key), NOBODY, now)).rejects.toMatchObject({ status: 503 });
  expect(authenticate({ DB }, withKey(known.key), NOBODY, now)).toMatchObject({ keyId: known.id });
  down = false;
  await expect(attempt({ DB }, withKey(fresh.key), NOBODY, now)).resolves.toMatchObject({ keyId: fresh.id });
});

test('a wrong key asks D1 once in thirty seconds, and works soon after its row arrives', async () => {
  const { plaintext, hash, prefix } = newSecret(KEY_PREFIX);
  const { DB, queries } = watchedDb(() => false);
  const now = Date.now();
  for (const later of [0, 1_000, 29_000]) {
    await expect(attempt({ DB }, withKey(plaintext), NOBODY, now + later)).rejects.toMatchObject({ status: 401 });
  }
  expect(queries()).toBe(1);
  await database(env)
    .insert(apiKeys)
    .values({ id: 'late', hash, prefix, name: 'late', role: 'consumer', createdAt: now });
  await expect(attempt({ DB }, withKey(plaintext), NOBODY, now + 31_000)).resolves.toMatchObject({ keyId: 'late' });
});

test('a flood of wrong keys does not make the isolate forget a good one', async () => {
  const { id, key } = await seedKey('consumer');
  const now = Date.now();
  await authenticate(env, withKey(key), NOBODY, now);
  const nothing = { DB: emptyDb() };
  for (let i = 0; i < 10_500; i += 1) {
    await attempt(nothing, withKey(newSecret(KEY_PREFIX).plaintext), NOBODY, now).catch(() => {});
  }
  expect(authenticate(nothing, withKey(key), NOBODY, now)).toMatchObject({ keyId: id });
});

test.each([
  ['no header', {}],
  ['basic credentials', { authorization: 'Basic c2stb3RlbGE6eA==' }],
  ['an empty bearer', { authorization: 'Bearer ' }],
  ['two words', { authorization: 'Bearer a b' }],
  ['a key of another house', { authorization: 'Bearer sk-proj-1234' }],
  ['a join token', { authorization: `Bearer otela-join-${'a'.repeat(43)}` }],
  ['sixty thousand characters', { 'x-api-key': 'x'.repeat(60_000) }],
])('%s is 401 invalid_api_key without a look into D1', async (_, headers: Record<string, string>) => {
  const { DB, queries } = watchedDb(() => true);
  const request = new Request('https://gateway.test/', { headers });
  await expect(attempt({ DB }, request, NOBODY, 0)).rejects.toMatchObject({ status: 401, code: 'invalid_api_key' });
  expect(queries()).toBe(0);
});

test('the bootstrap key is an operator even when D1 is down, in any format', async () => {
  const { DB } = watchedDb(() => true);
  const bootstrap = { DB, ADMIN_KEY_SHA256: `${sha256Hex('correct horse').toUpperCase()}\n` };
  const account = await authenticateUncached(
    bootstrap,
    new Request('https://g.test/', { headers: { 'x-api-key': 'correct horse' } }),
    0,
  );
  expect(account).toMatchObject({ keyId: 'bootstrap', role: 'operator' });
  await expect(authenticateUncached(bootstrap, withKey('correct'), 0)).rejects.toMatchObject({ status: 401 });
});

test('an invalid bootstrap hash admits no key', async () => {
  for (const ADMIN_KEY_SHA256 of ['', 'undefined', sha256Hex('a').slice(1)]) {
    await expect(authenticateUncached({ ...env, ADMIN_KEY_SHA256 }, withKey(''), 0)).rejects.toMatchObject({
      status: 401,
    });
    await expect(authenticateUncached({ ...env, ADMIN_KEY_SHA256 }, withKey('a'), 0)).rejects.toMatchObject({
      status: 401,
    });
  }
});

/** Answers every query with no rows, immediately. */
function emptyDb(): D1Database {
  const none = { bind: () => none, raw: async () => [], all: async () => ({ results: [] }) };
  return new Proxy(env.DB, { get: (_, name) => (name === 'prepare' ? () => none : undefined) });
}

test('a browser’s session lasts twelve hours, and not a moment longer', async () => {
  const now = Date.now();
  const db = database(env);
  await db.insert(users).values({ id: 'user_of_a_day', name: 'Ada', role: 'consumer', createdAt: now });
  const token = await openSession(env, 'user_of_a_day', now);
  const request = new Request('https://g.test/', { headers: { cookie: `${SESSION_COOKIE}=${token}` } });
  const end = now + 12 * 60 * MINUTE_MS;
  expect(await sessionAccount(env, request, end - 1)).toMatchObject({ userId: 'user_of_a_day' });
  await expect(sessionAccount(env, request, end)).rejects.toMatchObject({ code: 'invalid_api_key' });
});
