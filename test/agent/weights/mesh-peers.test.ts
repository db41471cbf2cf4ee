/** The nodes that are asked for weights, in a network of ten thousand. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Mesh } from '../../../agent/mesh/mesh.ts';
import { MeshPeers } from '../../../agent/weights/mesh-peers.ts';
import type { Liveness } from '../../../shared/gossip/gossip-events.ts';

const NODES = 10_000;
const CHANGES = 1_000;

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

interface Node {
  session: string;
  state: string;
  payload: { addresses: string[]; weights?: [] };
  ticket: { issuer: string; provider: string; cluster: string };
}

const nodeOf = (session: string): Node => ({
  session,
  state: 'SERVING',
  payload: { addresses: ['10.0.0.1:1'], weights: [] },
  ticket: { issuer: 'own', provider: 'lab', cluster: 'alps' },
});

/** A mesh with a registry that the test controls. */
function largeMesh() {
  const nodes = new Map(Array.from({ length: NODES }, (_, n) => [`s${n}`, nodeOf(`s${n}`)]));
  const liveness = new Map<string, Liveness>();
  let looked = 0;
  let tell: (sessions: readonly string[]) => void = () => {};
  const mesh = {
    *view() {
      for (const entry of nodes.values()) {
        looked++;
        yield { entry, liveness: liveness.get(entry.session) ?? 'alive' };
      }
    },
    watch: (watcher: typeof tell) => {
      tell = watcher;
      return () => {};
    },
    replica: {
      get: (session: string) => {
        looked++;
        return nodes.get(session);
      },
    },
    liveness: (session: string) => liveness.get(session) ?? 'alive',
  };
  const peers = new MeshPeers(() => undefined);
  peers.join(mesh as unknown as Mesh, { session: 's0', provider: 'lab', cluster: 'alps' });
  const change = (session: string, how: () => void = () => {}) => {
    vi.advanceTimersByTime(1_000);
    how();
    tell([session]);
    return performance.now() - peers.changedAt() === 0;
  };
  return { peers, nodes, liveness, change, looked: () => looked };
}

it('looks at the node that changed, not at ten thousand others', () => {
  const { peers, change, looked } = largeMesh();
  expect(peers.others()).toHaveLength(NODES - 1);
  const before = looked();
  for (let n = 0; n < CHANGES; n++) expect(change(`s${n}`)).toBe(false);
  expect(looked() - before).toBe(CHANGES);
  expect(peers.others()).toHaveLength(NODES - 1);
});

it('knows which nodes joined and left, and when', () => {
  const { peers, nodes, liveness, change } = largeMesh();
  const has = (session: string) => peers.others().some((peer) => peer.session === session);
  expect(change('new', () => nodes.set('new', nodeOf('new')))).toBe(true);
  expect(has('new')).toBe(true);
  expect(change('new', () => liveness.set('new', 'unreachable'))).toBe(true);
  expect(has('new')).toBe(false);
  expect(change('new', () => liveness.delete('new'))).toBe(true);
  // Its new cluster changes no set, but is visible.
  expect(
    change('new', () => nodes.set('new', { ...nodeOf('new'), ticket: { ...nodeOf('').ticket, cluster: 'b' } })),
  ).toBe(false);
  expect(peers.others().find(({ session }) => session === 'new')?.cluster).toBe('b');
  expect(change('new', () => nodes.set('new', { ...nodeOf('new'), state: 'LEFT' }))).toBe(true);
  expect(change('s1', () => nodes.delete('s1'))).toBe(true);
  expect([has('new'), has('s0'), has('s1'), has('s2')]).toEqual([false, false, false, true]);
});
