import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { admitNode } from '../../../gateway/accounts/admission.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { joinTokens } from '../../../gateway/accounts/schema.ts';
import { newId, newSecret, TOKEN_PREFIX } from '../../../gateway/accounts/secrets.ts';
import { seedKey, watchedDb } from './seed.ts';

async function seedToken(cluster: string | null, revokedAt: number | null = null) {
  const { plaintext, hash, prefix } = newSecret(TOKEN_PREFIX);
  const row = { id: newId('jt'), hash, prefix, name: 'n', provider: 'eth', cluster, createdAt: 0, revokedAt };
  await database(env).insert(joinTokens).values(row);
  return { id: row.id, token: plaintext };
}

function connect(token: string | undefined, cluster?: string): Request {
  const headers = new Headers({ upgrade: 'websocket' });
  if (token !== undefined) headers.set('authorization', `Bearer ${token}`);
  if (cluster !== undefined) headers.set('x-otela-cluster', cluster);
  return new Request('https://gateway.test/agent/connect', { headers });
}

test.each([
  ['the token names it', 'alps', undefined, 'alps'],
  ['both name the same', 'alps', 'alps', 'alps'],
  ['only the agent names it', null, 'daint', 'daint'],
  ['nobody names it', null, undefined, 'default'],
])('the cluster when %s', async (_, ofToken, ofAgent, expected) => {
  const { id, token } = await seedToken(ofToken);
  expect(await admitNode(env, connect(token, ofAgent))).toEqual({ provider: 'eth', cluster: expected, tokenId: id });
});

test('an agent that claims another cluster than its token is told both names', async () => {
  const { token } = await seedToken('alps');
  const refused = admitNode(env, connect(token, 'daint'));
  await expect(refused).rejects.toMatchObject({ status: 403, message: expect.stringMatching(/"alps".*"daint"/) });
});

test.each(['UPPER', 'a b', '-x', 'x'.repeat(64), '../x'])('a cluster called %j is malformed', async (cluster) => {
  const { token } = await seedToken(null);
  await expect(admitNode(env, connect(token, cluster))).rejects.toMatchObject({ status: 400 });
});

test('without a token, with a wrong one, a revoked one or an API key nobody joins', async () => {
  const revoked = await seedToken(null, 1);
  const apiKey = await seedKey('operator');
  for (const token of [undefined, `otela-join-${'a'.repeat(43)}`, 'x', revoked.token, apiKey.key]) {
    await expect(admitNode(env, connect(token))).rejects.toMatchObject({ status: 401 });
  }
});

test('while D1 is down a good token gets 503, not 401', async () => {
  const { token } = await seedToken(null);
  const { DB } = watchedDb(() => true);
  await expect(admitNode({ DB }, connect(token))).rejects.toMatchObject({ status: 503 });
});
