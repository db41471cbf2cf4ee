import { expect, test } from 'vitest';
import { modelLoads } from '../../../shared/routing/model-loads.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { RegistryChanges } from '../../../shared/routing/registry-changes.ts';
import { entry } from './support.ts';

const index = new NodeIndex();
for (const session of ['a', 'b', 'c']) index.put(entry(session));
index.put(entry('d', { models: [{ id: 'other', state: 'ready' }] }));

test('sums what is known and young, by model', () => {
  expect(modelLoads(index, 0)).toEqual([]);
  index.live.setLoad('a', { running: 3, waiting: 1, tokensPerSecond: 40.04, at: 1_000 });
  index.live.setLoad('b', { running: 2, waiting: 0, tokensPerSecond: 60.03, at: 2_000 });
  index.live.setLoad('d', { running: 1, waiting: 0, at: 2_000 });
  expect(modelLoads(index, 2_000)).toEqual([
    { id: 'm', known: 2, running: 5, waiting: 1, tokens_per_second: 100.1 },
    { id: 'other', known: 1, running: 1, waiting: 0, tokens_per_second: null },
  ]);
  expect(modelLoads(index, 6_001).map(({ id, running }) => [id, running])).toEqual([
    ['m', 2],
    ['other', 1],
  ]);
  expect(modelLoads(index, 7_001)).toEqual([]);
});

test('a stream that asked for them is told once a second at most, and that they are not known any more', () => {
  const view = { tag: 't', nodes: index };
  const [asked, silent] = [true, false].map(
    (loads) => new RegistryChanges(() => view, 'nodes', { requirements: [] }, loads),
  );
  index.live.setLoad('a', { running: 1, waiting: 0, at: 10_000 });
  expect(asked?.since(10_000)).toMatch(/^event: snapshot\n.*\n.*\n\nevent: load\n/);
  expect(silent?.since(10_000)).not.toContain('event: load');
  index.live.setLoad('a', { running: 2, waiting: 0, at: 10_300 });
  expect(asked?.since(10_500)).toBe('');
  expect(asked?.since(11_000)).toContain('"running":2');
  expect(asked?.since(12_000)).toBe('');
  expect(asked?.since(16_000)).toContain('{"object":"list","data":[]}');
});

test('what many streams are told is worked out once a second, changed or not', () => {
  let worked = 0;
  const counted = new NodeIndex();
  counted.put(entry('a'));
  const { models } = counted;
  counted.models = () => {
    worked++;
    return models.call(counted);
  };
  counted.live.setLoad('a', { running: 1, waiting: 0, at: 20_000 });
  const view = { tag: 't', nodes: counted };
  const streams = Array.from({ length: 8 }, () => new RegistryChanges(() => view, 'nodes', { requirements: [] }, true));
  const told = (at: number) => streams.filter((stream) => stream.since(at).includes('event: load')).length;
  expect(told(20_000)).toBe(8);
  for (let at = 20_250; at < 23_000; at += 250) expect(told(at)).toBe(0);
  expect(worked).toBe(3);
  counted.live.setLoad('a', { running: 2, waiting: 0, at: 23_000 });
  expect(told(23_000)).toBe(8);
  expect(worked).toBe(4);
});
