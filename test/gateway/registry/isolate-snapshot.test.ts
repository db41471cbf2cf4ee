/** An isolate's copy of the registry. */
import { expect, test } from 'vitest';
import { NO_SETTINGS } from '../../../gateway/accounts/gateway-settings.ts';
import type { Env } from '../../../gateway/env.ts';
import { isolateSnapshot } from '../../../gateway/registry/isolate-snapshot.ts';
import { type SnapshotDelta, SnapshotStore } from '../../../gateway/registry/snapshot-store.ts';
import { entry } from '../../shared/routing/support.ts';

const ctx = { waitUntil: () => {} };
const session = entry('s', { provider: 'lab', models: [{ id: 'm', state: 'ready' }] });
const carried = (models?: string[]) => {
  const lab = { trusted_by_default: true, deleted: false, ...(models !== undefined && { models }) };
  return { settings: { ...NO_SETTINGS, known: true, providers: { lab } }, issuers: [], gateway: 'g' };
};

test('a provider may publish all models again: they return although two refreshes that tell it overlap', async () => {
  const asked: { tag: string | null; answer(delta: SnapshotDelta): void }[] = [];
  const snapshot = (tag: string | null) =>
    new Promise<SnapshotDelta>((answer) => {
      asked.push({ tag, answer });
    });
  const env = { REGISTRY: { getByName: () => ({ snapshot }) } } as unknown as Env;
  let now = Date.now();
  const refresh = async (fresh: boolean) => {
    now += 10_000;
    return isolateSnapshot.get(env, ctx, now, () => !fresh);
  };
  const answer = (n: number, delta: SnapshotDelta) => asked[n]?.answer(delta);
  const again = { tag: '2', whole: false, entries: [], removed: [], carried: carried() };
  const first = refresh(true);
  answer(0, { tag: '1', whole: true, entries: [session], removed: [], carried: carried(['other']) });
  expect((await first).model('m')).toBeUndefined();
  const overlapping = [refresh(false), refresh(true)];
  expect(asked.slice(1).map(({ tag }) => tag)).toEqual(['1', '1']);
  answer(1, again);
  answer(2, again);
  await Promise.all(overlapping);
  const last = refresh(true);
  expect(asked[3]?.tag).toBeNull();
  answer(3, { ...again, whole: true, entries: [session] });
  expect((await last).model('m')).toBeDefined();
});

test('a large difference is read in parts, with a turn of the event loop between two, so that streams go on', async () => {
  const store = new SnapshotStore('parts');
  store.set(carried());
  let turns = 0;
  const seen: number[] = [];
  const snapshot = async (tag: string | null) => {
    seen.push(turns);
    setTimeout(() => turns++);
    return store.since(tag);
  };
  const env = { REGISTRY: { getByName: () => ({ snapshot }) } } as unknown as Env;
  const now = Date.now() + 100_000;
  await isolateSnapshot.get(env, ctx, now, () => false);
  for (let n = 0; n < 1_500; n++) store.put(entry(`s${n}`, { models: [{ id: 'large', state: 'ready' }] }));
  seen.length = 0;
  const view = await isolateSnapshot.get(env, ctx, now + 10_000, () => false);
  expect(view.model('large')?.ready).toHaveLength(1_500);
  expect(seen).toHaveLength(12);
  expect(new Set(seen).size).toBe(12);
});
