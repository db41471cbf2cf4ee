/** Request timelines, in the SQLite of their object. */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import type { RequestTimeline } from '../../../gateway/observe/request-timeline.ts';
import { TIMELINES_FOUND_MAX, TimelineStore } from '../../../gateway/observe/timeline-store.ts';
import { limitedStorage } from '../support/cloudflare-limits.ts';
import { runInDurableObject } from '../support/durable.ts';

const NOW = Date.parse('2026-11-25T10:00:00Z');
const DAY_MS = 86_400_000;
const some = { endpoint: 'chat/completions', model: 'm', served: 'm', node: '', provider: '' };
const end = { status: 503, error: 'no_node', totalMs: 1, steps: [] };
const story = (name: string, more: Partial<RequestTimeline>): RequestTimeline => ({
  id: name,
  name,
  at: NOW,
  key: 'k',
  ...some,
  ...end,
  ...more,
});

test('those of an object that sleeps between few of them go after their week, too', async () => {
  const left = await runInDurableObject(env.OBSERVE.getByName('sleepy'), (_, { storage }) => {
    for (let day = 0; day < 30; day++) {
      const woken = new TimelineStore(storage);
      woken.add([story(`r${day}`, { at: NOW + day * DAY_MS })], NOW + day * DAY_MS);
    }
    return storage.sql.exec('SELECT name FROM stories').toArray().length;
  });
  expect(left).toBe(7);
});

test('one’s own is found among many of others with the same id, by its key or another one of the same person', async () => {
  const found = await runInDurableObject(env.OBSERVE.getByName('same id'), (_, { storage }) => {
    const stories = new TimelineStore(storage);
    stories.add([story('mine', { id: '1', key: 'key_ada', user: 'ada' })], NOW);
    for (let n = 0; n < TIMELINES_FOUND_MAX + 1; n++)
      stories.add([story(`other${n}`, { id: '1', key: 'key_eve' })], NOW);
    const names = (key: string, user?: string) => stories.find('1', NOW, { key, user }).map(({ name }) => name);
    return [
      names('key_ada'),
      names('key_ada_2', 'ada'),
      names('key_bob', 'bob'),
      names('key_bob'),
      names('key_bob', ''),
    ];
  });
  expect(found).toEqual([['mine'], ['mine'], [], [], []]);
});

test('of a thousand at once, as long as stories become, none is lost where a value has a bound', async () => {
  const step = { at: 1, what: 'attempt', node: 'n'.repeat(64), provider: 'p'.repeat(64), error: 'e'.repeat(64) };
  const long = Array.from({ length: 1_000 }, (_, n) =>
    story(`long ${n}`, { key: '字'.repeat(64), steps: new Array(20).fill(step) as RequestTimeline['steps'] }),
  );
  const kept = await runInDurableObject(env.OBSERVE.getByName('long'), (_, { storage }) => {
    const stories = new TimelineStore(limitedStorage(storage));
    stories.add(long, NOW);
    return storage.sql.exec<{ n: number }>('SELECT count(*) AS n FROM stories').one().n;
  });
  expect(kept).toBe(1_000);
});
