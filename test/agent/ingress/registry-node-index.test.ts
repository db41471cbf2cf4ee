/** The nodes that an agent shows. */
import { expect, test } from 'vitest';
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import { RegistryNodeIndex } from '../../../agent/ingress/registry-node-index.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { encodeUpdate } from '../../../shared/lattice/registry-update.ts';
import { institution, node } from '../../shared/lattice/house.ts';

test('a node that LEFT is shown as long as the operator of its gateway has set', () => {
  const HOUR_MS = 3_600_000;
  const lab = institution();
  const gateway = lab.gateway();
  let [now, retentionMs] = [1_000_000, 2 * HOUR_MS];
  const replica = new RegistryReplica({ crypto: nodeCrypto, accepts: () => true });
  const nodes = new RegistryNodeIndex({
    replica,
    liveness: () => 'alive',
    issuerName: () => 'local',
    own: 'local',
    retentionMs: () => retentionMs,
    now: () => now,
  });
  const [gone, other] = [node(gateway), node(gateway)];
  for (const one of [gone, other]) replica.load(encodeUpdate(one.says('SERVING')));
  nodes.changed([gone.session, other.session]);
  replica.load(encodeUpdate(gone.says('LEFT', 2)));
  nodes.changed([gone.session]);
  now += HOUR_MS;
  nodes.changed([other.session]);
  expect(nodes.index.get(gone.session)?.state).toBe('LEFT');
  retentionMs = HOUR_MS / 2;
  nodes.changed([other.session]);
  expect(nodes.index.get(gone.session)).toBeUndefined();
});
