import { randomBytes } from 'node:crypto';
import { cp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { Cluster, hubFolder, PIECE, plainFolder, sha256 } from './cluster.ts';

afterEach(endAll);

it('of two pulls at once for which there is room for one, one is refused', async () => {
  const node = await new Cluster().add({ config: { limitBytes: 5 * PIECE } });
  const sources = await Promise.all([1, 2].map(async () => `dir:${await plainFolder({ a: randomBytes(3 * PIECE) })}`));
  const ended = await Promise.allSettled(sources.map((source) => node.weights.pull(source, true)));
  expect(ended.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  expect(ended.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'full' } });
  expect(await node.weights.store.used()).toBeLessThan(5 * PIECE);
});

it('the same for two agents that share a directory', async () => {
  const directory = await temporaryDirectory('otela-weights');
  const cluster = new Cluster();
  const config = { limitBytes: 5 * PIECE };
  const nodes = [await cluster.add({ directory, config }), await cluster.add({ directory, config })];
  const sources = await Promise.all([1, 2].map(async () => `dir:${await plainFolder({ a: randomBytes(3 * PIECE) })}`));
  const ended = await Promise.allSettled(nodes.map((node, i) => node.weights.pull(sources[i] ?? '', true)));
  expect(ended.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
});

it('a pull that failed keeps nothing in use', async () => {
  const node = await new Cluster().add({ config: { limitBytes: PIECE } });
  const source = `dir:${await plainFolder({ a: randomBytes(2 * PIECE) })}`;
  await expect(node.weights.pull(source, true)).rejects.toMatchObject({ code: 'full' });
  expect(await node.weights.held()).toMatchObject([{ pinned: false }]);
});

/** The source of a model, and how its content changes: a new list is due at once. */
async function changing(config: { limitBytes?: number } = {}) {
  let now = Date.now();
  const folder = await hubFolder({ 'model.safetensors': randomBytes(2 * PIECE), same: Buffer.from('same') });
  const node = await new Cluster().add({ config, weights: { now: () => now } });
  return {
    node,
    source: `dir:${folder}`,
    change: async () => {
      const bytes = randomBytes(2 * PIECE);
      const commit = sha256(bytes).slice(0, 40);
      await rm(join(folder, 'snapshots'), { recursive: true });
      const other = await hubFolder({ 'model.safetensors': bytes, same: Buffer.from('same') });
      await rm(folder, { recursive: true });
      await cp(other, folder, { recursive: true, verbatimSymlinks: true });
      await rename(join(folder, 'snapshots', 'c'.repeat(40)), join(folder, 'snapshots', commit));
      await writeFile(join(folder, 'refs', 'main'), commit);
      now += 3_600_000;
    },
  };
}

it('what a model had before it changed goes when the new revision is here, and what both have stays', async () => {
  const { node, source, change } = await changing();
  await node.weights.pull(source);
  await change();
  await node.weights.pull(source);
  expect(await node.weights.held()).toHaveLength(1);
  expect(await node.weights.store.used()).toBeLessThan(2 * PIECE + 1000);
  const [folder = ''] = (await readdir(node.directory)).filter((name) => name.startsWith('models--'));
  expect(await readdir(join(node.directory, folder, 'snapshots'))).toHaveLength(1);
  expect(await readdir(join(node.directory, folder, 'blobs'))).toHaveLength(2);
});

it('a revision that an engine runs from stays until its process has gone', async () => {
  const { node, source, change } = await changing();
  const { path } = await node.weights.pull(source, true);
  await change();
  await node.weights.pull(source);
  expect(await readdir(path)).toEqual(['model.safetensors', 'same']);
  expect(await node.weights.held()).toHaveLength(2);
  expect((await node.weights.held()).every(({ pinned }) => pinned)).toBe(true);
  // The next one finds that nothing uses it.
  await rm(join(node.directory, '.otela', 'pins'), { recursive: true });
  const next = await new Cluster().add({ directory: node.directory });
  await next.weights.pull(source);
  expect(await next.weights.held()).toHaveLength(1);
});
