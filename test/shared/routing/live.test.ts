import { expect, test } from 'vitest';
import { LiveNodes } from '../../../shared/routing/live.ts';
import { NodeIndex } from '../../../shared/routing/nodes.ts';
import { entry } from './support.ts';

test('a load is believed for five seconds, and an older word changes nothing', () => {
  const live = new LiveNodes();
  live.heard('a', { running: 3, waiting: 1, at: 1_000 });
  live.heard('a', { running: 9, waiting: 9, at: 999 });
  live.heard('b', { running: 1, waiting: 0, at: 4_000 });
  live.expire(6_000);
  expect(live.of('a').load?.running).toBe(3);
  live.expire(6_001);
  expect(live.of('a').load).toBeUndefined();
  expect(live.of('b').load?.running).toBe(1);
});

test('a snapshot brings loads and breakers of many, and takes a breaker back', () => {
  const live = new LiveNodes();
  live.apply({ a: { load: { running: 1, waiting: 0, at: 1 }, breaker: { state: 'open', since: 1 } } });
  expect(live.of('a').breaker?.state).toBe('open');
  live.apply({ a: { load: { running: 2, waiting: 0, at: 2 } } });
  expect(live.of('a')).toMatchObject({ breaker: undefined, load: { running: 2 } });
});

test('what left the index is forgotten with it', () => {
  const index = new NodeIndex();
  index.put(entry('a'));
  const before = index.live.of('a');
  index.delete('a');
  expect(index.live.of('a')).not.toBe(before);
});
