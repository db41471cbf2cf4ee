import { expect, test } from 'vitest';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { readRequirements } from '../../../shared/proxy/read-requirements.ts';
import { type Candidate, NO_REQUIREMENTS } from '../../../shared/routing/candidates.ts';
import {
  chooseNode,
  type RoutingQuery,
  requestEnded,
  requestStarted,
  unmetRequirements,
} from '../../../shared/routing/choose-node.ts';
import { noteFirstToken } from '../../../shared/routing/first-token-times.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { leastLoadPolicy } from '../../../shared/routing/policies/least-load.ts';
import { randomPolicy } from '../../../shared/routing/policies/random.ts';
import type { Policy } from '../../../shared/routing/routing-policy.ts';
import { decideTrust } from '../../../shared/routing/trusted-providers.ts';
import { entry } from './support.ts';

const trust = decideTrust({ own: 'local', lists: [], defaults: 'admitted', deleted: new Set(), policies: [] });
const NOW = Date.parse('2026-01-01T00:00:05.000Z');

const question = (more: Partial<RoutingQuery> = {}): RoutingQuery => ({
  request: { model: 'm', priority: 'interactive', inputTokens: 1 },
  fallbacks: [],
  trust,
  demand: NO_REQUIREMENTS,
  policyFor: () => randomPolicy,
  lostLatelyMs: 10_000,
  now: NOW,
  random: () => 0,
  ...more,
});

function indexOf(...entries: RegistryEntry[]): NodeIndex {
  const index = new NodeIndex();
  for (const one of entries) index.put(one);
  return index;
}

/** The nodes in the order in which they would be tried. */
function order(index: NodeIndex, asked: RoutingQuery): string[] {
  const tried = new Set<string>();
  const names: string[] = [];
  for (let choice = chooseNode(index, asked, tried); choice !== undefined; choice = chooseNode(index, asked, tried)) {
    tried.add(choice.node.session);
    names.push(choice.model === 'm' ? choice.node.session : `${choice.node.session} as ${choice.model}`);
  }
  return names;
}

const demand = (words: { require?: string; prefer?: string }) =>
  readRequirements((name) => (name === 'x-otela-require' ? words.require : words.prefer), {});
const gpu = (name: string) => ({
  hardware: { gpus: [{ class: name, name, vram_mib: 80 * 1024 }], cpus: 1, memory_mib: 1 },
});

test('healthy nodes come first, then avoided ones, and a node with a lost path only if there is no other', () => {
  const index = indexOf(entry('avoided'), entry('well'), entry('lost', { suspected: true }));
  const asked = question({ avoided: new Set(['avoided']) });
  expect(order(index, asked)).toEqual(['well', 'avoided', 'lost']);
  expect(order(index, { ...asked, now: NOW + 60_000 })).toEqual(['well', 'avoided']);
});

test('the default policy prefers the tier of the request’s class, and says so; a policy of the operator decides itself', () => {
  const index = indexOf(entry('volatile'), entry('stable', { tier: 'stable' }));
  const asked = question({ policyFor: () => leastLoadPolicy });
  const batch = { ...asked, request: { ...asked.request, priority: 'batch' as const } };
  for (const [one, wanted] of [
    [asked, 'stable'],
    [batch, 'volatile'],
  ] as const)
    expect(chooseNode(index, one, new Set())).toMatchObject({ node: { session: wanted }, byTier: true });
  expect(order(index, asked)).toEqual(['stable', 'volatile']);
  const own = question({ policyFor: () => ({ ...leastLoadPolicy, prefersTiers: false }) });
  expect(chooseNode(index, own, new Set())).toMatchObject({ node: { session: 'volatile' }, byTier: false });
});

test('a request with a time for its first token goes to a node, then to a fallback, that meets it, and else in the usual order', () => {
  const serving = (session: string, model: string) => entry(session, { models: [{ id: model, state: 'ready' }] });
  const index = indexOf(entry('slow'), entry('fast'), serving('small', 'small'));
  const note = (session: string, ms: number, at = NOW) => noteFirstToken(index.live.of(session), ms, at);
  const asked = (firstTokenMs: number) => ({
    ...question({ fallbacks: ['small'] }),
    request: { model: 'm', priority: 'interactive' as const, inputTokens: 1, firstTokenMs },
  });
  note('slow', 900);
  note('small', 100);
  expect(order(index, asked(500))).toEqual(['fast', 'small as small', 'slow']); // unknown may be fast
  note('fast', 400);
  expect(order(index, asked(500))).toEqual(['fast', 'small as small', 'slow']);
  expect(order(index, asked(200))).toEqual(['small as small', 'slow', 'fast']);
  expect(order(index, asked(50))).toEqual(['slow', 'fast', 'small as small']);
  expect(chooseNode(index, asked(200), new Set())).toMatchObject({ others: true });
  expect(chooseNode(index, asked(200), new Set(['slow', 'fast']))).toMatchObject({ others: false });
  // The mean follows the node, and is forgotten after a minute.
  for (let n = 0; n < 20; n++) note('slow', 10);
  expect(order(index, asked(50))[0]).toBe('slow');
  expect(order(index, { ...asked(1), now: NOW + 60_000 })[0]).toBe('slow');
});

test('requests that avoid the same nodes get the same list, so what policies remember by list stays valid', () => {
  const index = indexOf(entry('a'), entry('b'), entry('failing'));
  const lists: (readonly Candidate[])[] = [];
  const recording: Policy = {
    ...randomPolicy,
    pick: (candidates) => {
      lists.push(candidates);
      return candidates[0];
    },
  };
  const ask = (...avoided: string[]) =>
    chooseNode(index, question({ avoided: new Set(avoided), policyFor: () => recording }), new Set());
  for (const sessions of [['failing'], ['failing'], ['b'], ['failing'], ['of another model']]) ask(...sessions);
  expect(
    lists.map((list) =>
      list
        .map(({ session }) => session)
        .sort()
        .join(' '),
    ),
  ).toEqual([...['a b', 'a b', 'a failing', 'a b', 'a b failing']]);
  expect(lists[1]).toBe(lists[0]);
  expect(lists[3]).toBe(lists[0]);
});

test('what is preferred comes first, and all the others after it', () => {
  const index = indexOf(entry('a', gpu('A100')), entry('b', { ...gpu('H100'), region: 'ch' }), entry('c', gpu('H100')));
  expect(order(index, question({ demand: demand({ prefer: 'gpu=H100; region=ch' }) })).slice(0, 1)).toEqual(['b']);
  expect(order(index, question({ demand: demand({ prefer: 'gpu=H100; region=ch' }) })).toSorted()).toEqual([
    'a',
    'b',
    'c',
  ]);
});

test('what does not have what is required is not there at all, also as a last resort', () => {
  const index = indexOf(
    entry('a', gpu('A100')),
    entry('b', gpu('H100')),
    entry('c', { ...gpu('A100'), suspected: true }),
  );
  expect(order(index, question({ demand: demand({ require: 'gpu=H100' }) }))).toEqual(['b']);
});

test('time that is left is looked at when it is asked for', () => {
  const index = indexOf(entry('a', { job: { id: '1', ends_at: '2026-01-01T01:00:00.000Z' } }));
  const asked = question({ demand: demand({ require: 'time_left>=30m' }) });
  expect(order(index, asked)).toEqual(['a']);
  expect(order(index, { ...asked, now: NOW + 40 * 60_000 })).toEqual([]);
});

test('if no node meets the requirement, the message lists what nodes have', () => {
  const index = indexOf(
    entry('a', gpu('A100')),
    entry('b', gpu('A100')),
    entry('c', { ...gpu('L4'), region: 'ch' }),
    entry('d'),
  );
  const asked = question({ demand: demand({ require: 'gpu=H100; region=ch' }) });
  expect(unmetRequirements(index, asked)).toBe(
    "'m' is served with gpu=A100 region=unknown by 2 nodes, with gpu=L4 region=ch by 1 node, with gpu=unknown region=unknown by 1 node (a provider publishes what is unknown: --region NAME)",
  );
  expect(unmetRequirements(index, question({ demand: demand({ require: 'gpu=L4' }) }))).toBeUndefined();
  expect(unmetRequirements(indexOf(), asked)).toBeUndefined();
});

test('a fallback model is used only if no node is left for the one before, and all its nodes count as others', () => {
  const second = { models: [{ id: 'n', state: 'ready' as const }] };
  const third = { models: [{ id: 'o', state: 'ready' as const }] };
  const index = indexOf(entry('a'), entry('b', second), entry('c', third));
  const asked = question({ fallbacks: ['n', 'o'] });
  expect(order(index, asked)).toEqual(['a', 'b as n', 'c as o']);
  expect(chooseNode(index, asked, new Set())?.others).toBe(true);
  expect(chooseNode(index, asked, new Set(['a']))?.others).toBe(true);
  expect(chooseNode(index, asked, new Set(['a', 'b']))).toMatchObject({
    others: false,
    model: 'o',
    request: { model: 'o' },
  });
});

test('if a wait is due at all nodes, no node is chosen', () => {
  const index = indexOf(entry('a'), entry('b'));
  const only = (wanted: string) => (some: readonly Candidate[]) => some.filter(({ session }) => session === wanted);
  expect(order(index, question({ among: only('b') }))).toEqual(['b']);
  expect(order(index, question({ among: only('c') }))).toEqual([]);
});

test('a request counts at its node from its start to its end, in lists that were made before too', () => {
  const index = indexOf(entry('a'), entry('b'));
  const asked = question({ policyFor: () => leastLoadPolicy });
  const first = chooseNode(index, asked, new Set());
  if (first === undefined) throw new Error('nobody');
  requestStarted(first);
  const second = chooseNode(index, asked, new Set());
  expect([first.node.session, second?.node.session].sort()).toEqual(['a', 'b']);
  expect(first.node.inFlight).toBe(1);
  requestEnded(first, 'complete');
  expect(first.node.inFlight).toBe(0);
});

test('a load that is five seconds old is not known any more', () => {
  const index = indexOf(entry('a'), entry('b'));
  index.live.setLoad('a', { running: 50, waiting: 0, at: NOW });
  const asked = question({ policyFor: () => leastLoadPolicy });
  expect(chooseNode(index, { ...asked, now: NOW + 5_000 }, new Set())?.node.session).toBe('b');
  expect(chooseNode(index, { ...asked, now: NOW + 5_001 }, new Set())?.node.session).toBe('a');
});
