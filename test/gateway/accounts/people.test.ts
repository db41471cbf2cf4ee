import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { database } from '../../../gateway/accounts/database.ts';
import { issuersSchema } from '../../../gateway/accounts/login/oidc-config.ts';
import { arrive } from '../../../gateway/accounts/people.ts';
import { users } from '../../../gateway/accounts/schema.ts';

const [config] = issuersSchema.parse([
  { issuer: 'https://login.example.org', name: 'Example', client_id: 'opentela', admits: 'everybody' },
]);

test('who was mapped and is no more comes in no more, and keeps no role', async () => {
  const [mapped] = issuersSchema.parse([
    { ...config, admits: 'mapped', role_claim: 'groups', roles: { staff: { role: 'operator' } } },
  ]);
  if (mapped === undefined) throw new Error('no issuer');
  const come = (groups: string[]) => arrive(env, mapped, { sub: 'carol', groups }, Date.now());
  const { user } = await come(['staff', 'others']);
  expect(user.role).toBe('operator');
  await expect(come(['others'])).rejects.toMatchObject({ code: 'permission_denied' });
  const [stored] = await database(env).select().from(users).where(eq(users.id, user.id));
  expect(stored?.role).toBe('consumer');
  expect((await come(['staff'])).user.role).toBe('operator');
});

async function arrived(claims: { sub: string; [name: string]: unknown }) {
  if (config === undefined) throw new Error('no issuer');
  const { user } = await arrive(env, config, claims, Date.now());
  const [stored] = await database(env).select().from(users).where(eq(users.id, user.id));
  return { name: stored?.name, email: stored?.email };
}

test('a token that says nothing of name and address changes neither; one that does changes both', async () => {
  const ada = { name: 'Ada Lovelace', email: 'ada@example.org' };
  expect(await arrived({ sub: '4711', ...ada })).toEqual(ada);
  expect(await arrived({ sub: '4711', scope: 'openid' })).toEqual(ada);
  expect(await arrived({ sub: '4711', name: 'Ada King', email: null })).toEqual({ name: 'Ada King', email: null });
});

test('who is known by nothing else is called by their subject, on one line', async () => {
  expect(await arrived({ sub: 'bob\u0007' })).toEqual({ name: 'bob', email: null });
  expect(await arrived({ sub: '\u0007' })).toEqual({ name: 'somebody', email: null });
});
