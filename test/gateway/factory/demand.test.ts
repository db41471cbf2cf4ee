import { expect, test } from 'vitest';
import { DemandSignals } from '../../../gateway/factory/demand-signals.ts';
import { isFactorySilent, type KnownReport } from '../../../gateway/factory/factory-reports.ts';
import { BusyTimes, servingNodes } from '../../../gateway/factory/serving-nodes.ts';
import { startableModels } from '../../../gateway/factory/startable-models.ts';
import { LAUNCHERS } from '../../../shared/factory/factory-exchange.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';

const report = (more: Partial<KnownReport>): KnownReport => ({
  tokenId: 'ft_1',
  provider: 'lab',
  factory: 'f',
  at: 0,
  configRevision: '',
  models: [],
  clusters: [],
  jobs: [],
  decisions: [],
  day: [],
  ...more,
});
const cold = { id: 'm', state: 'cold' as const, min: 0, max: 1, pending: 0, running: 0, ready: 0 };

test('a factory is silent after 90 s, and where the clock was set back by as much', () => {
  expect(isFactorySilent({ at: 0 }, 89_999)).toBe(false);
  expect(isFactorySilent({ at: 0 }, 90_000)).toBe(true);
  expect(isFactorySilent({ at: 200_000 }, 0)).toBe(true);
});

test('an estimate grows shorter; what is overdue, or beyond a month, is not known', () => {
  const left = (estimate_ms: number, now: number) =>
    startableModels([report({ models: [{ ...cold, estimate_ms }] })], now)[0]?.readyInMs;
  expect([left(60_000, 20_000), left(60_000, 70_000), left(1e300, 0)]).toEqual([40_000, undefined, undefined]);
});

test.each(LAUNCHERS.filter((launcher) => launcher !== 'agents'))(
  'people who wait are told in which scheduler: %s',
  (launcher) => {
    const clusters = [{ id: 'alps', launcher, reachable: true, pending: 1, running: 0 }];
    const [found] = startableModels([report({ models: [{ ...cold, state: 'queued' }], clusters })], 0);
    expect(found?.where?.replaceAll(' ', '-').toLowerCase()).toBe(launcher);
  },
);

test('what a queue said holds for 12 s; the same requests are queued once a replica is ready', () => {
  const signs = new DemandSignals();
  signs.queued('m', { waiting: 3, oldestMs: 1_000 }, 0);
  expect(signs.of('m', 0, 2_000)).toMatchObject({ waiting: 3, queued: 0, oldest_wait_ms: 3_000, asked_ms_ago: 2_000 });
  expect(signs.of('m', 1, 2_000)).toMatchObject({ waiting: 0, queued: 3 });
  expect(signs.of('m', 0, 12_000)).toMatchObject({ waiting: 0, oldest_wait_ms: 0, asked_ms_ago: 12_000 });
  expect(signs.of('m', 0, 86_400_001)).not.toHaveProperty('asked_ms_ago');
});

test('if the clock is set back, a request was asked for now, and what a queue said no longer holds', () => {
  const signs = new DemandSignals();
  signs.queued('m', { waiting: 3, oldestMs: 1_000 }, 600_000);
  expect(signs.of('m', 0, 0)).toMatchObject({ waiting: 0, asked_ms_ago: 0 });
});

test('nothing is remembered of models that no factory has', () => {
  const signs = new DemandSignals();
  signs.asked('m', 1_000);
  signs.retain(new Set(['other']));
  expect(signs.of('m', 0, 1_000)).not.toHaveProperty('asked_ms_ago');
});

test('functions are not a model that a request could start', () => {
  expect(startableModels([report({ models: [{ ...cold, id: 'function:' }, cold] })], 0).map(({ id }) => id)).toEqual([
    'm',
  ]);
});

test('a node of a factory that runs functions is ready when it has joined; other nodes without an engine are joining', () => {
  const entry = (session: string, labels: Record<string, string>, state = 'JOIN') =>
    ({ session, state, labels, models: [], provider: 'lab', cluster: 'alps' }) as unknown as RegistryEntry;
  const nodes = {
    entries: () => [
      entry('a', { factory: 'f', functions: 'on' }),
      entry('b', { factory: 'f' }),
      entry('c', { functions: 'on' }, 'DOWN'),
    ],
    live: { loadOf: () => undefined },
  } as unknown as Parameters<typeof servingNodes>[0];
  const found = servingNodes(nodes, { provider: 'lab', factory: 'f' }, new Set(), new BusyTimes(), 0);
  expect(found.map(({ session, state }) => [session, state])).toEqual([
    ['a', 'ready'],
    ['b', 'joining'],
    ['c', 'draining'],
  ]);
});
