import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { watchRegistry } from '../../../gateway/registry/views/watch-registry.ts';

test('a stream ends with the key of its reader', async () => {
  const account = { ...BOOTSTRAP_ACCOUNT, expiresAt: Date.now() + 600 };
  const events = await new Response(watchRegistry(env, 'nodes', { requirements: [] }, account, false)).text();
  expect(events).toMatch(/^event: snapshot\n/);
  expect(Date.now()).toBeGreaterThanOrEqual(account.expiresAt);
});
