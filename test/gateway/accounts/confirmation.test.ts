/** Identity providers that are asked whether they still know a person. */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { users } from '../../../gateway/accounts/account-tables.ts';
import { forgetAccounts } from '../../../gateway/accounts/authenticate.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { CONFIRMATION_NAME } from '../../../gateway/accounts/login/confirmation-object.ts';
import { good, knock } from '../admin/support.ts';
import { runDurableObjectAlarm, runInDurableObject } from '../support/durable.ts';
import { AUDIENCE, CLIENT_ID, HostileIssuer, json, seconds } from './hostile-issuer.ts';
import { seedKey } from './seed.ts';

let one: HostileIssuer;
let silent: HostileIssuer;
let operator = '';
beforeAll(async () => {
  one = await HostileIssuer.open({ confirm_hours: 24, group_claim: 'groups', groups: { staff: 'staff' } });
  silent = await HostileIssuer.open();
  operator = (await seedKey('operator')).key;
  const body = { oidc: [one.config, silent.config] };
  expect((await knock('PATCH', '/admin/settings', { key: operator, body })).status).toBe(200);
});

const object = () => env.CONFIRMATION.getByName(CONFIRMATION_NAME);
const stored = () =>
  runInDurableObject(object(), (_, { storage }) =>
    storage.sql.exec('SELECT user, sealed, nextAt FROM logins').toArray(),
  );
/** Runs the alarm as if all confirmations were due. */
async function confirm(): Promise<void> {
  await runInDurableObject(object(), (_, { storage }) => void storage.sql.exec('UPDATE logins SET nextAt = 1'));
  await runDurableObjectAlarm(object());
  forgetAccounts();
}

/** Logs `sub` in. Returns the session's cookie, the scope that was asked for, and the user's row. */
async function login(issuer: HostileIssuer, sub: string, tokens: object = {}) {
  const begun = await knock('GET', `/login?issuer=${encodeURIComponent(issuer.issuer)}`);
  const sent = new URL(begun.headers.get('location') ?? '').searchParams;
  const cookie = (begun.headers.getSetCookie()[0] ?? '').split(';', 1)[0] ?? '';
  const id_token = await issuer.token({ aud: CLIENT_ID, sub, nonce: sent.get('nonce') ?? '', groups: ['staff'] });
  issuer.answers.set('/token', json({ id_token, ...tokens }));
  const { pathname } = new URL(sent.get('redirect_uri') ?? '');
  const ended = await knock('GET', `${pathname}?code=c&state=${sent.get('state')}`, { headers: { cookie } });
  expect(ended.status, await ended.text()).toBe(302);
  const session = ended.headers.getSetCookie().find((text) => text.includes('otela-session='));
  const [user] = await database(env).select().from(users).where(eq(users.subject, sub));
  if (user === undefined) throw new Error('no user');
  return { session: session?.split(';', 1)[0] ?? '', scope: sent.get('scope'), user };
}
const rowOf = async (id: string) => (await database(env).select().from(users).where(eq(users.id, id)))[0];
async function keyOf(user: string): Promise<string> {
  const body = { name: 'laptop', user_id: user };
  return (await good(knock('POST', '/admin/keys', { key: operator, body }), z.looseObject({ key: z.string() }))).key;
}
const status = async (key: string) => (await knock('GET', '/admin/me', { key })).status;
const sessionStatus = async (cookie: string) => (await knock('GET', '/admin/me', { headers: { cookie } })).status;
const refuse = () => one.answers.set('/token', () => Response.json({ error: 'invalid_grant' }, { status: 400 }));

beforeEach(() => {
  vi.spyOn(console, 'error').mockImplementation(() => {});
});

test('a person that the provider still knows keeps the keys and gets current rights, and the token is replaced', async () => {
  const { user, session, scope } = await login(one, 'ada', { refresh_token: 'first' });
  expect(scope).toBe('openid profile email offline_access');
  const key = await keyOf(user.id);
  const before = await stored();
  expect(before).toHaveLength(1);
  expect(JSON.stringify(before)).not.toContain('first');
  await database(env).update(users).set({ claimsAt: 1 }).where(eq(users.id, user.id));
  const id_token = await one.token({ aud: CLIENT_ID, sub: 'ada', groups: [] });
  one.answers.set('/token', json({ id_token, refresh_token: 'second' }));
  await confirm();
  const after = await stored();
  expect(after).toHaveLength(1);
  expect(after[0]?.sealed).not.toBe(before[0]?.sealed);
  expect(Number(after[0]?.nextAt)).toBeGreaterThan(Date.now() + 23 * 3_600_000);
  expect((await rowOf(user.id))?.groups).toEqual([]);
  expect((await rowOf(user.id))?.claimsAt).toBeGreaterThan(Date.now() - 60_000);
  expect([await status(key), await sessionStatus(session)]).toEqual([200, 200]);
});

test('a person that the provider refuses loses sessions and keys until the next login', async () => {
  const { user, session } = await login(one, 'bob', { refresh_token: 'a' });
  const key = await keyOf(user.id);
  const access = await one.token({ sub: 'bob', aud: AUDIENCE, iat: seconds() - 30 });
  refuse();
  await confirm();
  expect([await status(key), await sessionStatus(session)]).toEqual([401, 401]);
  // A token from before the refusal does not confirm the person.
  await knock('GET', '/v1/models', { key: access });
  forgetAccounts();
  expect(await status(key)).toBe(401);
  expect((await stored()).map((row) => row.user)).not.toContain(user.id);
  await login(one, 'bob', { refresh_token: 'b' });
  forgetAccounts();
  expect(await status(key)).toBe(200);
});

const UNDECIDED: [string, () => Response | Promise<Response>][] = [
  ['an error of the server', () => new Response('', { status: 503 })],
  ['a limit of requests', () => new Response('', { status: 429 })],
  ['another client', () => Response.json({ error: 'invalid_client' }, { status: 400 })],
  ['401', () => Response.json({ error: 'invalid_grant' }, { status: 401 })],
  ['a page', () => new Response('<html>invalid_grant', { status: 400 })],
  ['a page with success', () => new Response('<html>')],
  ['a redirect', () => new Response('', { status: 302, headers: { location: 'https://evil.example' } })],
  ['too much', () => new Response('x'.repeat(600_000))],
  ['nothing', () => Promise.reject(new TypeError('fetch failed'))],
  ['a forged token', () => Response.json({ id_token: 'a.b.c', refresh_token: 'x' })],
];
test.each(UNDECIDED)('a provider that answers with %s decides nothing', async (_, answer) => {
  const { user, session } = await login(one, 'eve', { refresh_token: 'a' });
  const key = await keyOf(user.id);
  one.answers.set('/token', answer);
  await confirm();
  expect([await status(key), await sessionStatus(session)]).toEqual([200, 200]);
  expect((await stored()).map((row) => row.user)).toContain(user.id);
});

test('a token about another person changes nothing for either', async () => {
  const { user } = await login(one, 'mallory', { refresh_token: 'a' });
  const victim = await login(one, 'victim', { refresh_token: 'b' });
  await object().forget(victim.user.id);
  const before = await rowOf(victim.user.id);
  one.answers.set('/token', json({ id_token: await one.token({ aud: CLIENT_ID, sub: 'victim', groups: [] }) }));
  await confirm();
  expect(await rowOf(victim.user.id)).toEqual(before);
  expect((await stored()).map((row) => row.user)).not.toContain(user.id);
});

test('nothing is kept without the setting, without a token, and after a person was erased', async () => {
  const rows = async () => (await stored()).map((row) => row.user);
  const { user, scope } = await login(silent, 'sam', { refresh_token: 'a' });
  expect(scope).toBe('openid profile email');
  expect(await rows()).not.toContain(user.id);
  const without = await login(one, 'without');
  expect(await rows()).not.toContain(without.user.id);
  const erased = await login(one, 'erased', { refresh_token: 'a' });
  expect(await rows()).toContain(erased.user.id);
  expect((await knock('DELETE', `/admin/users/${erased.user.id}`, { key: operator })).status).toBe(200);
  expect(await rows()).not.toContain(erased.user.id);
});

test('a provider that does not answer is asked about three people, and delays no person of another provider', async () => {
  const away = await HostileIssuer.open({ confirm_hours: 24 });
  const body = { oidc: [one.config, silent.config, away.config] };
  expect((await knock('PATCH', '/admin/settings', { key: operator, body })).status).toBe(200);
  for (let n = 0; n < 5; n++) await login(away, `away_${n}`, { refresh_token: 'a' });
  const { user } = await login(one, 'grace', { refresh_token: 'a' });
  await database(env).update(users).set({ claimsAt: 1 }).where(eq(users.id, user.id));
  const isConfirmed = async () => ((await rowOf(user.id))?.claimsAt ?? 0) > 1;
  one.answers.set('/token', json({ refresh_token: 'b' }));
  away.asked.length = 0;
  let wasConfirmed = false;
  away.answers.set('/token', async () => {
    // The first request is not answered until the other provider's person is confirmed.
    await vi.waitUntil(isConfirmed, { timeout: 10_000 }).catch(() => {});
    wasConfirmed ||= await isConfirmed();
    return new Response('', { status: 503 });
  });
  // The other provider's person is the last in the order of time.
  await runInDurableObject(object(), (_, { storage }) => {
    storage.sql.exec('UPDATE logins SET nextAt = 1');
    storage.sql.exec('UPDATE logins SET nextAt = 2 WHERE user = ?', user.id);
  });
  await runDurableObjectAlarm(object());
  expect(away.asked.filter((path) => path === '/token')).toHaveLength(3);
  expect(wasConfirmed).toBe(true);
  const rows = await stored();
  // Two people are still due.
  expect(rows.filter(({ nextAt }) => nextAt === 1)).toHaveLength(2);
});
