import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { database } from '../../../gateway/accounts/database.ts';
import { spendJoinToken } from '../../../gateway/accounts/join-grant.ts';
import { joinTokens } from '../../../gateway/accounts/schema.ts';
import { newId, newSecret, TOKEN_PREFIX } from '../../../gateway/accounts/secrets.ts';
import { watchedDb } from './seed.ts';

async function seed(more: Partial<typeof joinTokens.$inferInsert> = {}): Promise<string> {
  const { plaintext, hash, prefix } = newSecret(TOKEN_PREFIX);
  await database(env)
    .insert(joinTokens)
    .values({ id: newId('jt'), hash, prefix, name: 'n', provider: 'eth', createdAt: 0, ...more });
  return plaintext;
}

test('of twenty nodes that come at once as many get in as the token is for', async () => {
  const token = await seed({ maxNodes: 3 });
  const tries = await Promise.allSettled(Array.from({ length: 20 }, () => spendJoinToken(env, token, undefined, 1)));
  expect(tries.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
  await expect(spendJoinToken(env, token, undefined, 1)).rejects.toMatchObject({
    status: 401,
    message: expect.stringContaining('3 nodes'),
  });
});

test('another cluster costs no place, the right one or none does', async () => {
  const token = await seed({ maxNodes: 2, cluster: 'alps' });
  await expect(spendJoinToken(env, token, 'daint', 1)).rejects.toMatchObject({ status: 403 });
  expect(await spendJoinToken(env, token, 'alps', 1)).toMatchObject({ provider: 'eth', cluster: 'alps' });
  expect(await spendJoinToken(env, token, undefined, 1)).toMatchObject({ cluster: 'alps' });
  const any = await seed();
  expect(await spendJoinToken(env, any, 'daint', 1)).toMatchObject({ provider: 'eth', cluster: undefined });
});

test('expired, revoked, unknown and malformed tokens are told apart, and a store that is down from all of them', async () => {
  const expired = await seed({ expiresAt: 1_000 });
  expect(await spendJoinToken(env, expired, undefined, 999)).toMatchObject({ provider: 'eth' });
  const said = (token: string, words: string) =>
    expect(spendJoinToken(env, token, undefined, 1_000)).rejects.toMatchObject({
      status: 401,
      message: expect.stringContaining(words),
    });
  await said(expired, 'expired');
  await said(await seed({ revokedAt: 1 }), 'revoked');
  await said(`${TOKEN_PREFIX}${'a'.repeat(43)}`, 'not known');
  await said("' OR 1=1", 'not known');
  const { DB } = watchedDb(() => true);
  await expect(spendJoinToken({ DB }, expired, undefined, 1)).rejects.toMatchObject({ status: 503 });
});
