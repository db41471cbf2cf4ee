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
  return { node, leases: () => ledger.leases.length, look: (at: number) => lost.release(ledger, view, at) };
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
