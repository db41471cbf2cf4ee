import { env } from 'cloudflare:workers';
import { and, eq, isNull } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { apiKeys, projectMembers, projects, settings, users } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { findKey } from '../../../gateway/accounts/find-key.ts';
import { issuersSchema } from '../../../gateway/accounts/login/oidc-config.ts';
import { findOrCreateUser } from '../../../gateway/accounts/login/oidc-user.ts';
import { hasAccess } from '../../../gateway/accounts/model-access.ts';
import { watchedDb } from './seed.ts';

const [config] = issuersSchema.parse([
  { issuer: 'https://login.example.org', name: 'Example', client_id: 'opentela', admits: 'everybody' },
]);

test('a user that is no longer mapped cannot log in, and keeps no role', async () => {
  const [mapped] = issuersSchema.parse([
    { ...config, admits: 'mapped', role_claim: 'groups', roles: { staff: { role: 'operator' } } },
  ]);
  if (mapped === undefined) throw new Error('no issuer');
  const come = (groups: string[]) => findOrCreateUser(env, mapped, { sub: 'carol', groups }, Date.now());
  const { user } = await come(['staff', 'others']);
  expect(user.role).toBe('operator');
  await expect(come(['others'])).rejects.toMatchObject({ code: 'permission_denied' });
  const [stored] = await database(env).select().from(users).where(eq(users.id, user.id));
  expect(stored?.role).toBe('consumer');
  expect((await come(['staff'])).user.role).toBe('operator');
});

async function arrived(claims: { sub: string; [name: string]: unknown }) {
  if (config === undefined) throw new Error('no issuer');
  const { user } = await findOrCreateUser(env, config, claims, Date.now());
  const [stored] = await database(env).select().from(users).where(eq(users.id, user.id));
  return { name: stored?.name, email: stored?.email };
}

test('a token that says nothing of name and address changes neither; one that does changes both', async () => {
  const ada = { name: 'Ada Lovelace', email: 'ada@example.org' };
  expect(await arrived({ sub: '4711', ...ada })).toEqual(ada);
  expect(await arrived({ sub: '4711', scope: 'openid' })).toEqual(ada);
  expect(await arrived({ sub: '4711', name: 'Ada King', email: null })).toEqual({ name: 'Ada King', email: null });
});

test('a user without another name is called by the subject, on one line', async () => {
  expect(await arrived({ sub: 'bob\u0007' })).toEqual({ name: 'bob', email: null });
  expect(await arrived({ sub: '\u0007' })).toEqual({ name: 'somebody', email: null });
  expect(await arrived({ sub: 'x', name: 'Ada\u3164\u200b\u{e0061}' })).toEqual({ name: 'Ada', email: null });
  expect(await arrived({ sub: 'y', name: '\u3164' })).toEqual({ name: 'somebody', email: null });
});

const GROUPS = {
  ...config,
  admits: 'everybody',
  project_claim: 'groups',
  projects: { physics: 'proj_p', biology: 'proj_b', gone: 'proj_gone' },
  leads: { 'biology-leads': 'proj_b' },
  group_claim: 'groups',
  groups: { llm: 'llm-users' },
};
const [grouped] = issuersSchema.parse([GROUPS]);
const comes = (sub: string, claims: object, signIn = true) => {
  if (grouped === undefined) throw new Error('no issuer');
  return findOrCreateUser(env, grouped, { sub, iat: Math.floor(Date.now() / 1_000), ...claims }, Date.now(), signIn);
};
const db = () => database(env);
const membersOf = async (userId: string) => {
  const rows = await db().select().from(projectMembers).where(eq(projectMembers.userId, userId));
  return rows.map(({ projectId, lead, claimed }) => [projectId, lead, claimed]).toSorted();
};
const projectOf = async (id: string) => (await db().select().from(users).where(eq(users.id, id)))[0]?.projectId;
const keyIn = async (userId: string, projectId: string) => {
  const id = `key_${userId}_${projectId}`;
  const row = { id, hash: id, prefix: '', name: 'k', role: 'consumer' as const, userId, projectId, createdAt: 0 };
  await db().insert(apiKeys).values(row);
  return async () => findKey(env, { id }, Date.now());
};

test('groups give projects, leads and places on access lists, and each sign-in says them again', async () => {
  for (const id of ['proj_p', 'proj_b', 'proj_local']) {
    await db().insert(projects).values({ id, name: id, createdAt: 0 });
  }
  const { user, account } = await comes('dora', { groups: ['physics', 'biology', 'gone', 'biology-leads', 'llm'] });
  expect(user.projectId).toBe('proj_p');
  expect(await membersOf(user.id)).toEqual([['proj_b', true, true]]);
  const listed = { catalogue: { m: { access: ['group:llm-users'] } } };
  expect(hasAccess(listed, account, 'm')).toBe(true);
  const member = { projectId: 'proj_local', userId: user.id, lead: true, createdAt: 0 };
  await db()
    .insert(projectMembers)
    .values({ id: `proj_local/${user.id}`, ...member });
  const [inPhysics, inBiology, inLocal] = [
    await keyIn(user.id, 'proj_p'),
    await keyIn(user.id, 'proj_b'),
    await keyIn(user.id, 'proj_local'),
  ];
  const key = await inPhysics();
  expect(typeof key === 'object' && hasAccess(listed, key, 'm')).toBe(true);

  // In biology a member and no longer a lead; out of physics, and off the access list.
  const again = await comes('dora', { groups: 'biology' });
  expect(await projectOf(user.id)).toBe('proj_b');
  expect(hasAccess(listed, again.account, 'm')).toBe(false);
  expect(await inPhysics()).toBe('revoked');
  expect([typeof (await inBiology()), typeof (await inLocal())]).toEqual(['object', 'object']);
  // A local grant stays as it was.
  expect(await membersOf(user.id)).toEqual([['proj_local', true, false]]);

  await comes('dora', {});
  expect(await projectOf(user.id)).toBeNull();
  expect([await inBiology(), typeof (await inLocal())]).toEqual(['revoked', 'object']);
});

test('a sign-in that breaks off between two transactions is mended by the next: no key outlasts its project', async () => {
  const ids = Array.from({ length: 110 }, (_, n) => `proj_left${n}`);
  const projectRow = (id: string) => db().insert(projects).values({ id, name: id, createdAt: 0 });
  await db().batch([projectRow('proj_next'), ...ids.map(projectRow)]);
  const mapped = Object.fromEntries([...ids, 'proj_next'].map((id) => [id, id]));
  const [many] = issuersSchema.parse([{ ...GROUPS, projects: mapped }]);
  if (many === undefined) throw new Error('no issuer');
  const come = (groups: string[], at: Pick<typeof env, 'DB'> = env) =>
    findOrCreateUser(at, many, { sub: 'ines', groups }, Date.now(), true);
  const { user } = await come(ids);
  expect(await membersOf(user.id)).toHaveLength(109);
  const [first, ...others] = ids.map((projectId) => {
    const id = `key_${projectId}`;
    const row = {
      id,
      hash: id,
      prefix: '',
      name: 'k',
      role: 'consumer' as const,
      userId: user.id,
      projectId,
      createdAt: 0,
    };
    return db().insert(apiKeys).values(row);
  });
  if (first !== undefined) await db().batch([first, ...others]);
  let broken = 0;
  for (let good = 1; good < 20; good++) {
    // A store that fails after `good` batches.
    const store = watchedDb(() => store.queries() > good);
    const over = await come(['proj_next'], store).then(
      () => true,
      () => false,
    );
    if (over) break;
    broken += 1;
    if ((await membersOf(user.id)).length === 109) continue;
    // The rest is done by a sign-in with a working store.
    await come(['proj_next']);
    break;
  }
  expect(broken).toBeGreaterThan(0);
  expect([await projectOf(user.id), await membersOf(user.id)]).toEqual(['proj_next', []]);
  const working = and(eq(apiKeys.userId, user.id), isNull(apiKeys.revokedAt));
  expect(await db().select({ id: apiKeys.id }).from(apiKeys).where(working)).toEqual([]);
});

test('a token of a program that says no groups takes none away; one that says them does', async () => {
  const { user } = await comes('emil', { groups: ['physics', 'biology-leads', 'llm'] });
  const key = await keyIn(user.id, 'proj_p');
  expect((await comes('emil', { scope: 'openid' }, false)).account.groups).toEqual(['llm-users']);
  expect([await projectOf(user.id), await membersOf(user.id)]).toEqual(['proj_p', [['proj_b', true, true]]]);
  await comes('emil', { groups: [] }, false);
  expect([await projectOf(user.id), await membersOf(user.id), await key()]).toEqual([null, [], 'revoked']);
});

test('a project that operators gave, and of which claims do not decide, stays a person’s own', async () => {
  const { user } = await comes('finn', { groups: ['physics'] });
  await db().update(users).set({ projectId: 'proj_local' }).where(eq(users.id, user.id));
  await comes('finn', { groups: [] });
  expect(await projectOf(user.id)).toBe('proj_local');
});

test.each([
  ['a number', 7],
  ['an object', { physics: true }],
  ['a list within the list', ['physics', ['biology']]],
  ['more values than are read', Array.from({ length: 10_000 }, (_, n) => `group ${n}`)],
])('claims that are %s are refused with the name of the claim, and change nothing', async (what, groups) => {
  const { user } = await comes(`gina ${what}`, { groups: ['physics'] });
  const refused = comes(`gina ${what}`, { groups });
  await expect(refused).rejects.toMatchObject({
    code: 'permission_denied',
    message: expect.stringContaining('"groups"'),
  });
  expect(await projectOf(user.id)).toBe('proj_p');
});

test.each(['proj_b', '__proto__', 'constructor', 'group:llm-users', 'Physics', ' physics'])(
  'a group called %s is none that is mapped',
  async (name) => {
    const { user, account } = await comes(`hugo ${name}`, { groups: [name] });
    expect([user.projectId, await membersOf(user.id), account.groups]).toEqual([null, [], []]);
  },
);

const [vouched] = issuersSchema.parse([
  { ...GROUPS, issuer: 'https://vouches.example.org', role_claim: 'groups', roles: { staff: { role: 'operator' } } },
]);
const DAY_S = 86_400;
const vouch = (sub: string, claims: object, signIn: boolean) => {
  if (vouched === undefined) throw new Error('no issuer');
  return findOrCreateUser(env, vouched, { sub, ...claims }, Date.now(), signIn);
};
const roleOf = async (id: string) => (await db().select().from(users).where(eq(users.id, id)))[0]?.role;

test('an older token that is still good gives back no right that a newer one has taken away', async () => {
  const nowS = Math.floor(Date.now() / 1_000);
  const { user } = await vouch('olga', { groups: ['staff'], iat: nowS - 600 }, true);
  expect(await roleOf(user.id)).toBe('operator');
  await vouch('olga', { groups: [], iat: nowS - 60 }, true);
  expect(await roleOf(user.id)).toBe('consumer');
  const { account } = await vouch('olga', { groups: ['staff', 'physics'], iat: nowS - 600 }, false);
  expect([account.role, await roleOf(user.id), await projectOf(user.id)]).toEqual(['consumer', 'consumer', null]);
  await vouch('olga', { groups: ['staff'] }, false); // does not say when it was made
  expect(await roleOf(user.id)).toBe('consumer');
  await vouch('olga', { groups: ['staff'], iat: nowS }, false);
  expect(await roleOf(user.id)).toBe('operator');
});

test('a token of a program without the claim of roles takes no role away; a sign-in without it does', async () => {
  const nowS = Math.floor(Date.now() / 1_000);
  const { user } = await vouch('petra', { groups: ['staff'], iat: nowS - 3 }, true);
  await vouch('petra', { iat: nowS - 2 }, false);
  expect(await roleOf(user.id)).toBe('operator');
  await vouch('petra', { iat: nowS - 1 }, true);
  expect(await roleOf(user.id)).toBe('consumer');
});

test('keys of a person for whom the identity provider has not vouched for long rest until it does', async () => {
  const nowS = Math.floor(Date.now() / 1_000);
  const { user } = await vouch('quentin', { iat: nowS - 89 * DAY_S }, true);
  const id = 'key_quentin';
  const row = { id, hash: id, prefix: '', name: 'k', role: 'consumer' as const, userId: user.id, createdAt: 0 };
  await db().insert(apiKeys).values(row);
  const found = (days: number) => findKey(env, { id }, Date.now() + days * DAY_S * 1_000);
  const rule = (lapse_days: number | null) => {
    const value = [{ ...vouched, lapse_days }];
    return db()
      .insert(settings)
      .values({ name: 'oidc', value, updatedAt: 0 })
      .onConflictDoUpdate({ target: settings.name, set: { value } });
  };
  await rule(90);
  const key = await found(0);
  expect(typeof key === 'object' && key.expiresAt).toBe((nowS + DAY_S) * 1_000);
  expect(await found(2)).toBe('lapsed');
  await rule(null);
  expect(await found(2)).toMatchObject({ keyId: id });
  await rule(90);
  await vouch('quentin', { iat: nowS }, false);
  expect(await found(2)).toMatchObject({ keyId: id });
});
