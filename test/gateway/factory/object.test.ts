import { afterEach, expect, test, vi } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import { FactoryObject } from '../../../gateway/factory/object.ts';
import type { Clock, ObjectContext } from '../../../gateway/object-context.ts';
import { snapshots } from '../../../gateway/registry/snapshot.ts';
import type { FactoryReport } from '../../../shared/factory/exchange.ts';

afterEach(() => vi.restoreAllMocks());

/** Its timers ring when the test says so. */
class TestClock implements Clock {
  readonly rings = new Set<() => void>();
  now = () => 1_000;
  after = (_: number, ring: () => void) => this.#set(ring);
  every = (_: number, ring: () => void) => this.#set(ring);

  #set(ring: () => void): () => void {
    this.rings.add(ring);
    return () => void this.rings.delete(ring);
  }
}

const identity = { tokenId: 'token', provider: 'lab', factory: 'pool' };
const report: FactoryReport = {
  version: 1,
  factory: 'pool',
  config_revision: 'c0ffee',
  wait_ms: 20_000,
  models: [],
  jobs: [],
  clusters: [],
  decisions: [],
  drain: [],
};

test('an exchange that cannot be answered ends with its fault, and nothing of it goes on looking', async () => {
  const clock = new TestClock();
  const kv = { get: () => undefined, put: () => {}, delete: () => false, list: () => [] };
  const context = { clock, storage: { kv }, waitUntil: () => {} } as unknown as ObjectContext;
  const view = vi.spyOn(snapshots, 'get').mockReturnValue(snapshots.view);
  const object = new FactoryObject(context, {} as Env);
  const first = await object.exchange(identity, report);
  if (first.kind !== 'answer') throw new Error('no answer');
  const held = object.exchange(identity, { ...report, after: first.answer.revision });
  await vi.waitFor(() => expect(clock.rings.size).toBe(2));
  view.mockImplementation(() => Promise.reject(new Error('no view')));
  for (const ring of [...clock.rings]) ring();
  await expect(held).rejects.toThrow('no view');
  expect(clock.rings.size).toBe(0);
});
