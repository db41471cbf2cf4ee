import { env, exports } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { expect, test, vi } from 'vitest';
import { apiKeys } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { patience } from '../../support/patience.ts';
import { seedKey } from './seed.ts';

const DAY_MS = 86_400_000;

test('a key was used when it was used, however much later that is written, and never earlier than before', async () => {
  // Imported again, as in a new isolate: the isolate of the other tests has written a moment ago, and would wait.
  vi.resetModules();
  const { recordLastUse: touch } = await import('../../../gateway/accounts/last-used.ts');
  const [busy, rare] = [(await seedKey('consumer')).id, (await seedKey('consumer')).id];
  const now = Date.now();
  const works: Promise<unknown>[] = [];
  const ctx = { waitUntil: (work: Promise<unknown>) => void works.push(work) };
  const used = (keyId: string, at: number) => touch({ keyId, userId: undefined }, env, ctx, at);
  const usedAt = async (id: string) => {
    await Promise.all(works);
    return (await database(env).select().from(apiKeys).where(eq(apiKeys.id, id)))[0]?.lastUsedAt;
  };
  used(busy, now);
  used(rare, now + 1_000);
  expect([await usedAt(busy), await usedAt(rare)]).toEqual([now, null]);
  used(busy, now + DAY_MS);
  expect([await usedAt(busy), await usedAt(rare)]).toEqual([now + DAY_MS, now + 1_000]);
  // Another isolate knows an older time.
  used(busy, now + 2 * DAY_MS);
  await database(env)
    .update(apiKeys)
    .set({ lastUsedAt: now + 9 * DAY_MS })
    .where(eq(apiKeys.id, busy));
  used(busy, now + 3 * DAY_MS);
  expect(await usedAt(busy)).toBe(now + 9 * DAY_MS);
  used(rare, now + 2 * DAY_MS);
  expect(await usedAt(rare), 'the clock was set back').toBe(now + 2 * DAY_MS);
});

test('any use of a key updates its last use', async () => {
  for (const path of ['/v1/models', '/v1/registry/nodes', '/admin/me']) {
    const { id, key } = await seedKey('consumer');
    // The previous uses were written a moment ago, so the isolate would wait for a minute. Not by days: the registry's
    // clock never goes back, and its certificate would have ended for the test files that follow.
    vi.setSystemTime(Date.now() + 2 * 60_000);
    const response = await exports.default.fetch(withPath(path, key));
    expect([path, response.status]).toEqual([path, 200]);
    await vi.waitFor(
      async () => {
        const [stored] = await database(env).select().from(apiKeys).where(eq(apiKeys.id, id));
        expect([path, stored?.lastUsedAt]).toEqual([path, expect.any(Number)]);
      },
      { timeout: patience(30_000) },
    );
  }
  vi.useRealTimers();
});

function withPath(path: string, key: string): Request {
  return new Request(`https://gateway.test${path}`, { headers: { authorization: `Bearer ${key}` } });
}
