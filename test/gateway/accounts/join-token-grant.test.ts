import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { joinTokens, providers } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { countJoin, readJoinGrant } from '../../../gateway/accounts/join-token-grant.ts';
import { newId, newSecret, TOKEN_PREFIX } from '../../../gateway/accounts/secrets.ts';
import { watchedDb } from './seed.ts';

async function seed(more: Partial<typeof joinTokens.$inferInsert> = {}): Promise<string> {
  const { plaintext, hash, prefix } = newSecret(TOKEN_PREFIX);
  await database(env)
    .insert(joinTokens)
    .values({ id: newId('jt'), hash, prefix, name: 'n', provider: 'eth', createdAt: 0, ...more });
  return plaintext;
}

test('another cluster is refused, the right one or none is not', async () => {
  const token = await seed({ maxNodes: 2, cluster: 'alps' });
  await expect(readJoinGrant(env, token, 'daint', 1)).rejects.toMatchObject({ status: 403 });
  const grant = { provider: 'eth', cluster: 'alps', tokenNodesMax: 2, providerNodesMax: null };
  expect(await readJoinGrant(env, token, 'alps', 1)).toMatchObject(grant);
  expect(await readJoinGrant(env, token, undefined, 1)).toMatchObject(grant);
  const any = await seed();
  expect(await readJoinGrant(env, any, 'daint', 1)).toMatchObject({ cluster: undefined, tokenNodesMax: null });
});

test('the number of nodes that its provider may have comes along', async () => {
  const token = await seed({ provider: 'psi' });
  await database(env).insert(providers).values({ id: 'psi', name: 'PSI', maxNodes: 7, createdAt: 0 });
  expect(await readJoinGrant(env, token, undefined, 1)).toMatchObject({ providerNodesMax: 7 });
});

test('joins are counted, and one with a token that was revoked meanwhile is not', async () => {
  const { tokenId } = await readJoinGrant(env, await seed(), undefined, 1);
  expect(await countJoin(env, tokenId)).toBe(true);
  await database(env).update(joinTokens).set({ revokedAt: 1 }).where(eq(joinTokens.id, tokenId));
  expect(await countJoin(env, tokenId)).toBe(false);
  const [row] = await database(env).select().from(joinTokens).where(eq(joinTokens.id, tokenId));
  expect(row?.joined).toBe(1);
});

test('expired, revoked, unknown and malformed tokens are told apart, and a store that is down from all of them', async () => {
  const expired = await seed({ expiresAt: 1_000 });
  expect(await readJoinGrant(env, expired, undefined, 999)).toMatchObject({ provider: 'eth' });
  const said = (token: string, words: string) =>
    expect(readJoinGrant(env, token, undefined, 1_000)).rejects.toMatchObject({
      status: 401,
      message: expect.stringContaining(words),
    });
  await said(expired, 'expired');
  await said(await seed({ revokedAt: 1 }), 'revoked');
  await said(`${TOKEN_PREFIX}${'a'.repeat(43)}`, 'not known');
  await said("' OR 1=1", 'not known');
  const { DB } = watchedDb(() => true);
  await expect(readJoinGrant({ DB }, expired, undefined, 1)).rejects.toMatchObject({ status: 503 });
});
