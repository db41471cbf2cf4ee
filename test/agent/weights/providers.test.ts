import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import type { Peers } from '../../../agent/weights/peer-directory.ts';
import { endAll } from '../../support/processes.ts';
import { Cluster, type Node, PIECE, plainFolder } from './cluster.ts';

afterEach(endAll);

/** One node serves all others, and all others see it as another provider's. */
class Deceived extends Cluster {
  evil: Node | undefined;

  override peersOf(node: Node): Peers {
    const peers = super.peersOf(node);
    const seen = ({ session, provider, cluster }: ReturnType<Peers['others']>[number]) => ({
      session,
      cluster,
      provider: session === this.evil?.name.session && node !== this.evil ? 'mallory' : provider,
    });
    return { ...peers, others: () => peers.others().map(seen) };
  }
}

it('another provider’s node gives neither a list of files nor a blob that no digest vouches for', async () => {
  const cluster = new Deceived();
  cluster.evil = await cluster.add();
  const folder = await plainFolder({ 'modeling.py': Buffer.from('evil') });
  await cluster.evil.weights.pull(`dir:${folder}`);
  const real = randomBytes(PIECE * 2);
  await writeFile(join(folder, 'modeling.py'), real);
  const victim = await cluster.add();
  const { path, status } = await victim.weights.pull(`dir:${folder}`);
  expect((await readFile(join(path, 'modeling.py'))).equals(real)).toBe(true);
  expect(status).toMatchObject({ from_peers: 0, from_source: real.length });
});
