import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { type Account, BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { watchRegistry } from '../../../gateway/registry/views/watch-registry.ts';

test('readers without a key, or one holder of keys, cannot take the streams of others', async () => {
  const open = (account: Account | undefined) => watchRegistry(env, 'nodes', { requirements: [] }, account, false);
  const one = { ...BOOTSTRAP_ACCOUNT, keyId: 'key_1', userId: 'user_1' };
  for (const account of [undefined, one]) {
    const streams = Array.from({ length: 32 }, () => open(account));
    expect(() => open(account)).toThrow(/maximum of 32 registry streams/);
    expect(() => open(account && { ...one, keyId: 'key_2' })).toThrow(/maximum/);
    const other = open({ ...one, userId: 'user_2' });
    for (const stream of [...streams, other]) await stream.cancel();
    await open(account).cancel();
  }
});

test('a stream ends with the key of its reader', async () => {
  const account = { ...BOOTSTRAP_ACCOUNT, expiresAt: Date.now() + 600 };
  const events = await new Response(watchRegistry(env, 'nodes', { requirements: [] }, account, false)).text();
  expect(events).toMatch(/^event: snapshot\n/);
  expect(Date.now()).toBeGreaterThanOrEqual(account.expiresAt);
});
