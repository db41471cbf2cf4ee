import { expect, test } from 'vitest';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { RegistryChanges } from '../../../shared/routing/registry-changes.ts';
import { modelsView, nodesView, parseFilter, providersView } from '../../../shared/routing/registry-view.ts';
import { RequirementError } from '../../../shared/routing/requirements.ts';
import { entry } from './support.ts';

const index = new NodeIndex();
const gpus = (name: string, vram_mib: number) => ({ gpus: [{ class: name, name, vram_mib }], cpus: 1, memory_mib: 1 });
index.put(entry('a', { hardware: gpus('GH200', 97_871), job: { id: '7', node: 'nid001' } }));
index.put(entry('b', { provider: 'eth', cluster: 'euler', hardware: gpus('A100', 40_960), suspected: true }));
index.put(entry('c', { provider: 'eth', state: 'LEFT', models: [{ id: 'n', state: 'ready' }] }));

function sessions(query: string): string[] {
  const filter = parseFilter(new URLSearchParams(query));
  return nodesView(index, filter, 0).data.map(({ session }) => session);
}

test.each([
  ['', ['a', 'b', 'c']],
  ['provider=eth', ['b', 'c']],
  ['provider=eth,lab', ['a', 'b', 'c']],
  ['provider=eth&provider=lab', ['a', 'b', 'c']],
  ['cluster=euler', ['b']],
  ['state=serving', ['a', 'b']],
  ['state=LEFT', ['c']],
  ['model=n', ['c']],
  ['model=m&model=n', ['a', 'b', 'c']],
  ['gpu=GH200', ['a']],
  ['vram>=40', ['a', 'b']],
  ['vram%3E=41', ['a']],
  ['vram>=40&provider=eth', ['b']],
  ['provider=nobody', []],
])('nodes with "%s"', (query, expected) => expect(sessions(query)).toEqual(expected));

test.each(['colour=red', 'state=ALIVE', 'vram>=much', '__proto__=1', `${'provider=a&'.repeat(65)}`])(
  'a filter "%.12s" that cannot be meant is refused',
  (query) => expect(() => sessions(query)).toThrow(RequirementError),
);

test('host names are not shown', () => {
  expect(JSON.stringify(nodesView(index, parseFilter([]), 0))).not.toContain('nid001');
});

test('models count the replicas that pass, and those that could be routed to', () => {
  expect(modelsView(index, parseFilter([]), 0).data).toEqual([
    { id: 'm', replicas: 2, serving: 1, providers: ['eth', 'lab'], kinds: [{ nodes: 1, engines: [], require: '' }] },
    { id: 'n', replicas: 0, serving: 0, providers: ['eth'], kinds: [] },
  ]);
  expect(modelsView(index, parseFilter([['provider', 'lab']]), 0).data).toEqual([
    { id: 'm', replicas: 1, serving: 1, providers: ['lab'], kinds: [{ nodes: 1, engines: [], require: '' }] },
  ]);
});

test('providers count their nodes', () => {
  expect(providersView(index, parseFilter([]), 0).data).toEqual([
    { id: 'eth', nodes: 1, serving: 0 },
    { id: 'lab', nodes: 1, serving: 1 },
  ]);
});

test('a watcher of nodes with time left is told when a node has too little, even without another event', () => {
  const nodes = new NodeIndex();
  const ends_at = new Date(3_600_000).toISOString();
  nodes.put(entry('a', { job: { id: '7', ends_at } }));
  const view = { tag: '1', nodes };
  const news = new RegistryChanges(() => view, 'nodes', parseFilter([['time_left>', '30m']]));
  expect(news.since(0)).toMatch(/^event: snapshot\n.*\ndata: .*"session":"a"/);
  expect(news.since(1_799_000)).not.toContain('event: ');
  expect(news.since(1_801_000)).toContain('event: gone\n');
  expect(news.since(1_802_000)).toBe('');
});
