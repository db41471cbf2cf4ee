import { afterEach, expect, test, vi } from 'vitest';
import type { ModelCatalogue } from '../../../gateway/accounts/model-access.ts';
import type { Env } from '../../../gateway/env.ts';
import { FactoryObject } from '../../../gateway/factory/factory-object.ts';
import type { Clock, ObjectContext } from '../../../gateway/platform/object-context.ts';
import { storageHealth } from '../../../gateway/platform/storage/storage-health.ts';
import { isolateSnapshot, type RegistrySnapshot } from '../../../gateway/registry/isolate-snapshot.ts';
import { FACTORY_LABEL, type FactoryReport, NODES_MAX } from '../../../shared/factory/factory-exchange.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import type { NodeLoad } from '../../../shared/routing/node-load.ts';
import { entry } from '../../shared/routing/support.ts';
import { patience } from '../../support/patience.ts';

afterEach(() => vi.restoreAllMocks());

/** The test fires its timers. */
class TestClock implements Clock {
  readonly rings = new Set<() => void>();
  at = 1_000;
  now = () => this.at;
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

function open(clock: TestClock): FactoryObject {
  const kv = { get: () => undefined, put: () => {}, delete: () => false, list: () => [] };
  const context = { clock, storage: { kv }, health: storageHealth, waitUntil: () => {} } as unknown as ObjectContext;
  return new FactoryObject(context, {} as Env);
}

test('a node whose last load was said while its last request ran becomes idle though no other request comes', async () => {
  const clock = new TestClock();
  const nodes = new NodeIndex();
  const node = entry('a'.repeat(26), { provider: 'lab' });
  nodes.put(node);
  nodes.live.setLoad(node.session, { running: 1, waiting: 0, at: clock.at } as NodeLoad);
  vi.spyOn(isolateSnapshot, 'get').mockReturnValue({ nodes } as unknown as RegistrySnapshot);
  const object = open(clock);
  const seen = async () => {
    const reply = await object.exchange(identity, { ...report, wait_ms: 0 });
    const [one] = reply.kind === 'answer' ? reply.answer.nodes : [];
    return [one?.in_flight, one?.idle_ms];
  };
  expect(await seen()).toEqual([1, 0]);
  clock.at += 20_000;
  expect(await seen()).toEqual([0, 20_000]);
});

test('a factory hears of its deployments, whichever provider has their nodes, and of no other provider otherwise', async () => {
  const nodes = new NodeIndex();
  const deployed = (session: string, deployment: string) =>
    nodes.put(entry(session.repeat(26), { provider: 'other', labels: { 'otela.deployment': deployment } }));
  deployed('a', 'otela-pool--0123456789ab-1-0');
  deployed('b', 'otela-pool-2--0123456789ab-1-0');
  deployed('c', 'by-hand');
  vi.spyOn(isolateSnapshot, 'get').mockReturnValue({ nodes } as unknown as RegistrySnapshot);
  const reply = await open(new TestClock()).exchange(identity, { ...report, wait_ms: 0 });
  const told = reply.kind === 'answer' ? reply.answer.nodes : [];
  expect(told).toMatchObject([
    { session: 'a'.repeat(26), labels: { 'otela.deployment': 'otela-pool--0123456789ab-1-0' } },
  ]);
});

test('a factory receives its own nodes, however many others its provider has', async () => {
  const nodes = new NodeIndex();
  for (let n = 0; n <= NODES_MAX; n++) nodes.put(entry(`${n}`.padStart(26, 'a'), { provider: 'lab' }));
  nodes.put(entry('z'.repeat(26), { provider: 'lab', labels: { [FACTORY_LABEL]: 'pool' } }));
  vi.spyOn(isolateSnapshot, 'get').mockReturnValue({ nodes } as unknown as RegistrySnapshot);
  const reply = await open(new TestClock()).exchange(identity, { ...report, wait_ms: 0 });
  if (reply.kind !== 'answer') throw new Error('no answer');
  expect(reply.answer.nodes).toHaveLength(NODES_MAX);
  expect(reply.answer.nodes[0]?.session).toBe('z'.repeat(26));
});

test('an exchange that cannot be answered ends with its fault, and nothing of it goes on looking', async () => {
  const clock = new TestClock();
  const view = vi.spyOn(isolateSnapshot, 'get').mockReturnValue(isolateSnapshot.view);
  const object = open(clock);
  const first = await object.exchange(identity, report);
  if (first.kind !== 'answer') throw new Error('no answer');
  const held = object.exchange(identity, { ...report, after: first.answer.revision });
  await vi.waitFor(() => expect(clock.rings.size).toBe(2), { timeout: patience(30_000) });
  view.mockImplementation(() => Promise.reject(new Error('no view')));
  for (const ring of [...clock.rings]) ring();
  await expect(held).rejects.toThrow('no view');
  expect(clock.rings.size).toBe(0);
});

test('of a model that is always on each factory keeps one replica, also once it serves, until the model ends', async () => {
  const clock = new TestClock();
  const catalogue: ModelCatalogue = { on: { always_on: true, sunset_at: 9_000 }, off: {} };
  vi.spyOn(isolateSnapshot, 'get').mockReturnValue({
    nodes: new NodeIndex(),
    settings: { catalogue },
  } as unknown as RegistrySnapshot);
  const object = open(clock);
  const models = ['on', 'off'].map((id) => ({ id })) as unknown as FactoryReport['models'];
  const demand = async () => {
    const reply = await object.exchange(identity, { ...report, models, wait_ms: 0 });
    return reply.kind === 'answer'
      ? reply.answer.demand.map(({ model, wanted }) => [model, wanted?.[0]?.replicas])
      : [];
  };
  expect(await demand()).toEqual([['on', 1]]);
  clock.at = 9_000;
  expect(await demand()).toEqual([]);
});

test('a token that reports under ever new names pushes out its own factories, and no other token’s', async () => {
  const clock = new TestClock();
  vi.spyOn(isolateSnapshot, 'get').mockReturnValue({ nodes: new NodeIndex() } as unknown as RegistrySnapshot);
  const object = open(clock);
  await object.exchange(identity, { ...report, wait_ms: 0 });
  const greedy = (factory: string, wait_ms: number, after?: string) =>
    object.exchange(
      { ...identity, tokenId: 'greedy', factory },
      { ...report, factory, wait_ms, ...(after && { after }) },
    );
  const first = await greedy('name-0', 0);
  const held = greedy('name-0', 20_000, first.kind === 'answer' ? first.answer.revision : '');
  for (let i = 1; i < 40; i++) await greedy(`name-${i}`, 0);
  expect(await held).toEqual({ kind: 'over' });
  const shown = await object.show();
  expect(shown.map(({ tokenId }) => tokenId).filter((id) => id === 'token')).toHaveLength(1);
  expect(shown).toHaveLength(32);
});

test('a factory whose last answer was forgotten for others’ is told news, and not taken for one that knows them', async () => {
  const clock = new TestClock();
  vi.spyOn(isolateSnapshot, 'get').mockReturnValue({
    nodes: new NodeIndex(),
    settings: { catalogue: {} },
  } as unknown as RegistrySnapshot);
  const object = open(clock);
  const own = {
    ...report,
    models: [{ id: 'm', state: 'cold' as const, min: 0, max: 1, pending: 0, running: 0, ready: 0 }],
    wait_ms: 0,
  };
  const first = await object.exchange(identity, own);
  const after = first.kind === 'answer' ? first.answer.revision : '';
  for (let i = 0; i < 70; i++) {
    const factory = `name-${i}`;
    await object.exchange({ ...identity, tokenId: 'greedy', factory }, { ...report, factory, wait_ms: 0 });
  }
  object.asked('m');
  const reply = await object.exchange(identity, { ...own, after });
  expect(reply.kind === 'answer' && reply.answer.revision).not.toBe(after);
});
