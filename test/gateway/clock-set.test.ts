/** The gateway's clock is set back by ten minutes. What it keeps for seconds is still kept for seconds. */
import { env } from 'cloudflare:workers';
import { beforeAll, expect, test, vi } from 'vitest';
import { authenticate } from '../../gateway/accounts/authenticate.ts';
import { NO_SETTINGS } from '../../gateway/accounts/gateway-settings.ts';
import { installationSecret } from '../../gateway/accounts/installation-secret.ts';
import type { Env } from '../../gateway/env.ts';
import { StorageFailingError, StorageHealth } from '../../gateway/platform/storage/storage-health.ts';
import { isolateSnapshot } from '../../gateway/registry/isolate-snapshot.ts';
import { LogTails } from '../../gateway/registry/views/engine-log-tails.ts';
import { ReportedLoad } from '../../gateway/tunnel/reported-load.ts';
import { seedKey, watchedDb, withKey } from './accounts/seed.ts';
import { runInDurableObject } from './support/durable.ts';

const TEN_MINUTES_MS = 600_000;

beforeAll(async () => {
  await installationSecret(env);
});

test('a storage that failed is tried again after a second, and the log says so again', () => {
  const lines: string[] = [];
  const health = new StorageHealth((line) => lines.push(line));
  const now = Date.now();
  health.failed(new Error('database or disk is full'), now);
  expect(() => health.require(now + 1)).toThrow(StorageFailingError);
  expect(() => health.require(now - TEN_MINUTES_MS + 1_001)).not.toThrow();
  health.failed(new Error('database or disk is full'), now - TEN_MINUTES_MS + 61_000);
  expect(lines).toHaveLength(2);
});

test('a cached account is asked for again ten minutes later, and a refused key after half a minute', async () => {
  const { key } = await seedKey('consumer');
  const { DB, queries } = watchedDb(() => false);
  const settings = { ...NO_SETTINGS, known: true };
  const now = Date.now();
  await authenticate({ DB }, withKey(key), settings, now);
  await authenticate({ DB }, withKey(key), settings, now - TEN_MINUTES_MS + 1_000);
  expect(queries()).toBe(2);
});

test('a snapshot of the registry is asked for again', async () => {
  const snapshot = vi.fn(async () => null);
  const host = { REGISTRY: { getByName: () => ({ snapshot }) } } as unknown as Env;
  const ctx = { waitUntil: () => {} };
  const now = Date.now();
  await isolateSnapshot.get(host, ctx, now, () => false);
  const asked = snapshot.mock.calls.length;
  await isolateSnapshot.get(host, ctx, now - TEN_MINUTES_MS, () => true);
  expect(snapshot.mock.calls.length).toBe(asked + 1);
});

test('the registry hears of a node’s load', () => {
  const watch = new ReportedLoad();
  const now = Date.now();
  expect(watch.update({ running: 1, waiting: 0 }, 1, now)).toBeDefined();
  expect(watch.update({ running: 2, waiting: 0 }, 2, now + 1)).toBeUndefined();
  expect(watch.update({ running: 3, waiting: 0 }, 3, now - TEN_MINUTES_MS)).toBeDefined();
});

test('an engine’s log tail is taken', async () => {
  await runInDurableObject(env.LIMITS.getByName('clock-set'), (_, { storage }) => {
    const tails = new LogTails(storage as never);
    const at = Date.now();
    const tail = { session: 's', provider: 'eth', text: 'CUDA error' };
    expect(tails.put({ ...tail, at })).toBe(true);
    expect(tails.put({ ...tail, at: at + 1 })).toBe(false);
    expect(tails.put({ ...tail, at: at - TEN_MINUTES_MS })).toBe(true);
  });
});
