import { expect, test } from 'vitest';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { dormantModel } from '../../../shared/routing/dormant-models.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { buildRequirement, type Requirement } from '../../../shared/routing/requirements.ts';
import { decideTrust, LOCAL_ISSUER } from '../../../shared/routing/trusted-providers.ts';
import { entry } from './support.ts';

const asleep = (wakeMs?: number) => ({
  models: [{ id: 'm', state: 'asleep' as const, ...(wakeMs === undefined ? {} : { load_ms: wakeMs }) }],
});
const TRUST = decideTrust({
  own: LOCAL_ISSUER,
  lists: [['lab']],
  defaults: 'admitted',
  deleted: new Set(),
  policies: [],
});

function found(entries: RegistryEntry[], require: Requirement[] = []) {
  const nodes = new NodeIndex();
  for (const one of entries) nodes.put(one);
  return dormantModel(nodes.model('m'), TRUST, require, 0);
}

test('the node that wakes fastest is chosen; one that was never measured comes last', () => {
  const nodes = [entry('a', asleep()), entry('b', asleep(9_000)), entry('c', asleep(2_000))];
  expect(found(nodes)).toEqual({
    session: 'c',
    provider: 'lab',
    version: 1,
    state: 'asleep',
    parent: undefined,
    readyInMs: 2_000,
  });
  expect(found([entry('a', asleep())])).toMatchObject({ session: 'a', readyInMs: undefined });
});

test.each([
  ['of a provider that the request does not trust', { provider: 'evil' }],
  ['of another institution, which does not obey', { issuer: 'far' }],
  ['whose tunnel is gone', { connected: false }],
  ['that is suspected', { suspected: true }],
  ['that drains', { state: 'DOWN' as const }],
  ['that serves the model', { models: [{ id: 'm', state: 'ready' as const }] }],
  ['with another model asleep', { models: [{ id: 'other', state: 'asleep' as const }] }],
])('a node %s is not woken', (_, more) => {
  expect(found([entry('a', { ...asleep(1), ...more })])).toBeUndefined();
});

test('a node that does not meet the requirements is not woken', () => {
  const require = [buildRequirement('tier', '=', 'stable')];
  expect(found([entry('a', asleep(1))], require)).toBeUndefined();
  expect(found([entry('a', { ...asleep(1), tier: 'stable' })], require)).toBeDefined();
});
