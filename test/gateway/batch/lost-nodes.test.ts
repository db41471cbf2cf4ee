import { expect, test } from 'vitest';
import { LostNodes } from '../../../gateway/batch/leases/lost-nodes.ts';
import type { RegistrySnapshot } from '../../../gateway/registry/isolate-snapshot.ts';
import { LeaseLedger } from '../../../shared/batch/lease-ledger.ts';

const TURN_MS = 5_000;

function bench() {
  const range = { first: 0, offset: 0, bytes: 10, lines: 1, demands: 0, prefix: 0 };
  const ledger = new LeaseLedger(LeaseLedger.chunksOf([range]));
  ledger.grant('a', 0, 60_000, () => true);
  const lost = new LostNodes();
  const node = { connected: false, suspected: false, state: 'SERVING' };
  const view = { nodes: new Map([['a', node]]) } as unknown as Pick<RegistrySnapshot, 'nodes'>;
  return { node, leases: () => ledger.leases.length, look: (at: number) => lost.release(ledger, view, at, () => {}) };
}

test('a node whose line is lost for 15 s loses its leases', () => {
  const { leases, look } = bench();
  for (let at = TURN_MS; at <= 15_000; at += TURN_MS) look(at);
  expect(leases()).toBe(1);
  look(20_000);
  expect(leases()).toBe(0);
});

test('a gateway that stood still for a minute takes no leases from a node that came back meanwhile', () => {
  const { node, leases, look } = bench();
  look(TURN_MS);
  look(66_000);
  expect(leases()).toBe(1);
  node.connected = true;
  look(67_000);
  node.connected = false;
  for (let at = 70_000; at < 85_000; at += TURN_MS) look(at);
  expect(leases()).toBe(1);
});

test('a line that ends the engines of nodes fails after three of them', () => {
  const range = { first: 0, offset: 0, bytes: 20, lines: 2, demands: 0, prefix: 0 };
  const ledger = new LeaseLedger(LeaseLedger.chunksOf([range]));
  const lost = new LostNodes();
  const verdicts: unknown[] = [];
  const end = (name: string, leaving: string) => {
    ledger.grant(name, 0, 60_000, () => true);
    const view = { nodes: new Map([[name, { connected: false, suspected: false, state: 'LEFT', leaving }]]) };
    lost.release(ledger, view as unknown as Pick<RegistrySnapshot, 'nodes'>, 0, ({ ref, line }) =>
      verdicts.push([line, ledger.engineFailed(ref, line)]),
    );
    expect(ledger.leases).toEqual([]);
  };
  for (const name of ['a', 'b']) end(name, 'engine-ended');
  for (const why of ['preempted', 'time-limit', 'unknown', 'killed', 'node-failure', 'drain']) end('c', why);
  expect(verdicts).toEqual([]);
  for (const why of ['engine-ended', 'engine-broken', 'out-of-memory']) end('d', why);
  expect(verdicts).toEqual([
    [0, 'again'],
    [0, 'again'],
    [0, 'exhausted'],
  ]);
});
