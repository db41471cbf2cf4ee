import { expect, test } from 'vitest';
import { LiveNodes } from '../../../shared/routing/live-nodes.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { entry } from './support.ts';

test('a load is believed for five seconds, and an older word changes nothing', () => {
  const live = new LiveNodes();
  live.setLoad('a', { running: 3, waiting: 1, at: 1_000 });
  live.setLoad('a', { running: 9, waiting: 9, at: 999 });
  live.setLoad('b', { running: 1, waiting: 0, at: 4_000 });
  live.expire(6_000);
  expect(live.of('a').load?.running).toBe(3);
  live.expire(6_001);
  expect(live.of('a').load).toBeUndefined();
  expect(live.of('b').load?.running).toBe(1);
});

test('a snapshot brings loads and breakers of many; an older word on a breaker changes nothing', () => {
  const live = new LiveNodes();
  live.apply({ a: { load: { running: 1, waiting: 0, at: 1 }, breaker: { state: 'open', since: 2, until: 9 } } });
  expect(live.of('a').breaker?.state).toBe('open');
  expect([...live.tripped.keys()]).toEqual(['a']);
  live.apply({ a: { load: { running: 2, waiting: 0, at: 2 } } });
  live.apply({ a: { breaker: { state: 'closed', since: 1, until: 1 } } });
  expect(live.of('a')).toMatchObject({ breaker: { state: 'open' }, load: { running: 2 } });
  live.apply({ a: { breaker: { state: 'closed', since: 3, until: 3 } } });
  expect(live.of('a').breaker?.state).toBe('closed');
  expect(live.tripped.size).toBe(0);
});

test('what left the index is forgotten with it', () => {
  const index = new NodeIndex();
  index.put(entry('a'));
  const before = index.live.of('a');
  index.live.setBreaker('a', { state: 'open', since: 1, until: 2 });
  index.delete('a');
  expect(index.live.of('a')).not.toBe(before);
  expect(index.live.tripped.size).toBe(0);
});
