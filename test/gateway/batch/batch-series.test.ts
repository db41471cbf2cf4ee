/** The course of a batch in the storage of its object. */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { type BatchSample, BatchSeries, SAMPLES_MAX } from '../../../gateway/batch/batch-series.ts';
import type { ObjectStorage } from '../../../gateway/platform/object-context.ts';
import { limitedStorage } from '../support/cloudflare-limits.ts';
import { runInDurableObject } from '../support/durable.ts';

const sample = (at: number, completed = at): BatchSample => ({
  at,
  nodes: 1,
  completed,
  failed: 0,
  requeued: 0,
  gpu_seconds: 0.5,
  leases: 2,
  warm_leases: 1,
});

const within = <T>(name: string, act: (storage: ObjectStorage) => T) =>
  runInDurableObject(env.LIMITS.getByName(name), async (_, { storage }) =>
    act(limitedStorage(storage) as unknown as ObjectStorage),
  );

test('has a sample each five seconds, its last one at any time, and none of a clock that was set back', async () => {
  const all = await within('series', (storage) => {
    const series = new BatchSeries(storage);
    for (const at of [100, 102, 105, 109, 50, 110]) series.add(sample(at));
    series.add(sample(111), true);
    return new BatchSeries(storage).all();
  });
  expect(all).toEqual([100, 105, 110, 111].map((at) => sample(at)));
});

test('is bounded: a batch of thirty days has its whole course', async () => {
  const end = 30 * 86_400;
  const { all, left } = await within('long series', (storage) => {
    const series = new BatchSeries(storage);
    for (let at = 5; at <= end; at += at < 20_000 ? 5 : 300) series.add(sample(at));
    const all = series.all();
    series.forget();
    series.add(sample(1));
    return { all, left: series.all().length };
  });
  expect(all.length).toBeLessThanOrEqual(SAMPLES_MAX);
  expect(all.length).toBeGreaterThan(SAMPLES_MAX / 4);
  expect(all[0]?.at).toBe(5);
  expect(all.at(-1)?.at).toBeGreaterThan(end * 0.95);
  const gaps = all.slice(1).map(({ at }, i) => at - (all[i]?.at ?? 0));
  expect(Math.max(...gaps)).toBeLessThan(end / 40);
  expect(left).toBe(1);
});
