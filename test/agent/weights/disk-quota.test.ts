import { randomBytes } from 'node:crypto';
import { cp, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { openSource } from '../../../agent/weights/sources/open-source.ts';
import { contentDigest } from '../../../agent/weights/sources/source-listing.ts';
import { StoredManifests } from '../../../agent/weights/stored-manifests.ts';
import { mountFileSystem } from '../../support/file-system.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { Cluster, hubFolder, type Node, type NodeOptions, PIECE, plainFolder, sha256 } from './cluster.ts';

afterEach(endAll);

/**
 * Two pulls of 3 pieces each: neither reads its source before both have asked for disk space. Returns how they ended.
 */
async function twoAtOnce(nodes: (weights: NodeOptions) => Promise<[Node, Node]>) {
  const bothAsked = Promise.withResolvers<void>();
  let asked = 0;
  const ask = () => {
    asked++;
    if (asked === 2) bothAsked.resolve();
  };
  const waiting: typeof openSource = (source, env) => {
    const real = openSource(source, env);
    return {
      list: (signal) => real.list(signal),
      async *read(...args) {
        ask();
        await bothAsked.promise;
        yield* real.read(...args);
      },
    };
  };
  const sources = await Promise.all([1, 2].map(async () => `dir:${await plainFolder({ a: randomBytes(3 * PIECE) })}`));
  const pair = await nodes({ config: { limitBytes: 5 * PIECE }, weights: { openSource: waiting } });
  const pulls = pair.map((node, i) => node.weights.pull(sources[i] ?? '', true));
  for (const pull of pulls) pull.catch(ask);
  return Promise.allSettled(pulls);
}

const EITHER = [
  { status: 'fulfilled' },
  { status: 'rejected', reason: { code: 'full', message: expect.stringContaining('still arriving') } },
];
const sorted = (ended: PromiseSettledResult<unknown>[]) => ended.sort((a, b) => (a.status < b.status ? -1 : 1));

it('of two pulls at once for which there is room for one, one is refused', async () => {
  const cluster = new Cluster();
  const ended = await twoAtOnce(async (options) => {
    const node = await cluster.add(options);
    return [node, node];
  });
  expect(sorted(ended)).toMatchObject(EITHER);
});

it('the same for two agents that share a directory', async () => {
  const cluster = new Cluster();
  const directory = await temporaryDirectory('otela-weights');
  const ended = await twoAtOnce(async (options) => [
    await cluster.add({ ...options, directory }),
    await cluster.add({ ...options, directory }),
  ]);
  expect(sorted(ended)).toMatchObject(EITHER);
});

it('a pull that failed keeps nothing in use', async () => {
  const node = await new Cluster().add({ config: { limitBytes: PIECE } });
  const source = `dir:${await plainFolder({ a: randomBytes(2 * PIECE) })}`;
  await expect(node.weights.pull(source, true)).rejects.toMatchObject({ code: 'full' });
  expect(await node.weights.held()).toMatchObject([{ pinned: false }]);
});

it('what is pulled for an engine is in use, also where another pull of it is about to end', async () => {
  const node = await new Cluster().add();
  const source = `dir:${await plainFolder({ a: randomBytes(PIECE) })}`;
  const { manifests } = node.weights.store;
  const unpin = manifests.unpin.bind(manifests);
  let forEngine: Promise<unknown> | undefined;
  manifests.unpin = (id) => {
    forEngine ??= node.weights.pull(source, true);
    return unpin(id);
  };
  await node.weights.pull(source);
  await forEngine;
  expect(await node.weights.held()).toMatchObject([{ pinned: true }]);
});

/** The source of a model. Its content changes, so a new list is needed immediately. */
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
  // The next agent finds that nothing uses it.
  await rm(join(node.directory, '.otela', 'pins'), { recursive: true });
  const next = await new Cluster().add({ directory: node.directory });
  await next.weights.pull(source);
  expect(await next.weights.held()).toHaveLength(1);
});

it('a disk that fills up while a blob comes fails the pull, and what had come is kept for the next', async ({
  skip,
}) => {
  const disk = mountFileSystem({ sizeMiB: 4 });
  if (typeof disk === 'string') return skip(disk);
  const bytes = randomBytes(3 * 1024 * 1024);
  const source = `dir:${await hubFolder({ 'model.safetensors': bytes })}`;
  const node = await new Cluster().add({
    directory: join(disk.path, 'weights'),
    weights: {
      openSource: (one, env) => {
        const real = openSource(one, env);
        return {
          list: (signal) => real.list(signal),
          async *read(...args) {
            for await (const chunk of real.read(...args)) {
              for (let at = 0; at < chunk.length; at += PIECE) {
                if (at === 8 * PIECE) disk.fill(0);
                yield chunk.subarray(at, at + PIECE);
              }
            }
          },
        };
      },
    },
  });
  await expect(node.weights.pull(source)).rejects.toMatchObject({ code: 'full' });
  disk.empty();
  const next = await new Cluster().add({ directory: node.directory });
  const { path } = await next.weights.pull(source);
  expect((await readFile(join(path, 'model.safetensors'))).equals(bytes)).toBe(true);
  expect(next.read).toBeLessThan(bytes.length);
});

it('an eviction that is cut off is finished by the next, and what is left without a manifest goes when an agent starts', async () => {
  const cluster = new Cluster();
  const directory = await temporaryDirectory('otela-weights');
  const first = await cluster.add({ directory });
  const source = `dir:${await plainFolder({ a: randomBytes(3 * PIECE) })}`;
  await first.weights.pull(source);
  const { environments } = first.weights.store;
  const remove = environments.remove.bind(environments);
  environments.remove = () => Promise.reject(new Error('killed'));
  await expect(first.weights.remove(source)).rejects.toThrow('killed');
  environments.remove = remove;
  expect(await first.weights.held()).toMatchObject([{ here: 0 }]);
  await first.weights.remove(source);
  expect(await first.weights.held()).toEqual([]);

  const { path } = await first.weights.pull(source);
  const [blob = ''] = (await readdir(join(directory, '.otela', 'blobs'))).filter((name) => !name.includes('.'));
  await mkdir(join(directory, '.otela', 'environments', blob));
  await writeFile(join(directory, '.otela', 'environments', blob, 'left'), '');
  const second = await cluster.add({ directory });
  expect(await second.weights.store.used()).toBeGreaterThan(0);
  await rm(join(directory, '.otela', 'manifests'), { recursive: true });
  const third = await cluster.add({ directory });
  expect(await third.weights.store.used()).toBe(0);
  expect(await third.weights.store.environments.keys()).toEqual([]);
  // A model in the directory that is not the agent's own stays.
  expect(await readFile(join(path, 'a'))).toHaveLength(3 * PIECE);
});

it('one manifest that cannot be read says nothing of what no model has: an agent that starts deletes nothing', async () => {
  const cluster = new Cluster();
  const first = await cluster.add();
  const source = `dir:${await plainFolder({ a: randomBytes(2 * PIECE) })}`;
  await first.weights.pull(source);
  const [manifest = ''] = await readdir(join(first.directory, '.otela', 'manifests'));
  const path = join(first.directory, '.otela', 'manifests', manifest);
  const text = await readFile(path, 'utf8');
  const used = await first.weights.store.used();
  // A later version may write it like this.
  await writeFile(path, JSON.stringify({ ...JSON.parse(text), manifest: { format: 9 } }));
  const second = await cluster.add({ directory: first.directory });
  expect(await second.weights.store.used()).toBe(used);
  expect(second.log).toContainEqual(expect.stringContaining('no weights are deleted'));
  await writeFile(path, text);
  expect(await second.weights.held()).toMatchObject([{ here: 2 * PIECE }]);
});

it('a model is not deleted beside a manifest that cannot be read: it may have the same blobs', async () => {
  const shared = randomBytes(2 * PIECE);
  const node = await new Cluster().add({ config: { limitBytes: 3 * PIECE } });
  const [one, two] = await Promise.all(['1', '2'].map((b) => hubFolder({ a: shared, b: Buffer.from(b) })));
  await node.weights.pull(`dir:${one}`);
  await node.weights.pull(`dir:${two}`);
  const path = join(node.directory, '.otela', 'manifests', `${contentDigest(`dir:${two}`)}.json`);
  const text = await readFile(path, 'utf8');
  await writeFile(path, JSON.stringify({ ...JSON.parse(text), manifest: { format: 9 } }));
  await expect(node.weights.remove(`dir:${one}`)).rejects.toMatchObject({
    code: 'refused',
    message: expect.stringContaining(path),
  });
  const other = `dir:${await plainFolder({ c: randomBytes(2 * PIECE) })}`;
  await expect(node.weights.pull(other)).rejects.toMatchObject({ code: 'refused' });
  await writeFile(path, text);
  const here = (await node.weights.held()).map((one) => one.here);
  expect(here.sort()).toEqual([0, 2 * PIECE + 1, 2 * PIECE + 1]);
});

it('a model that another agent takes into use while this one deletes it stays whole', async () => {
  const cluster = new Cluster();
  const directory = await temporaryDirectory('otela-weights');
  const [first, second] = [await cluster.add({ directory }), await cluster.add({ directory })];
  const source = `dir:${await plainFolder({ a: randomBytes(2 * PIECE) })}`;
  await first.weights.pull(source);
  const { manifests } = first.weights.store;
  const all = manifests.all.bind(manifests);
  let used: ReturnType<Node['weights']['pull']> | undefined;
  manifests.all = async () => {
    const found = await all();
    // After the first agent has seen that nothing uses it.
    used ??= second.weights.pull(source, true);
    await used;
    return found;
  };
  await expect(first.weights.remove(source)).rejects.toMatchObject({ code: 'refused' });
  const { path } = (await used) ?? {};
  expect(await readFile(join(path ?? '', 'a'))).toHaveLength(2 * PIECE);
  expect(await second.weights.held()).toMatchObject([{ here: 2 * PIECE, pinned: true }]);
});

it('processes with one number, as in two containers, keep a list at the same time', async () => {
  const node = await new Cluster().add();
  const source = `dir:${await plainFolder({ a: randomBytes(PIECE) })}`;
  const { manifest } = await node.weights.pull(source);
  const { inside, locking } = node.weights.store;
  const all = Array.from({ length: 8 }, () => new StoredManifests(inside, locking.presence));
  await Promise.all(all.map((one) => one.save('shared', manifest, 1)));
  expect((await all[0]?.get('shared'))?.manifest).toEqual(manifest);
});

it('a model that is evicted while a pull of it waits for room is kept all the same', async () => {
  const node = await new Cluster().add();
  const source = `dir:${await plainFolder({ a: randomBytes(2 * PIECE) })}`;
  await node.weights.pull(source);
  const { store } = node.weights;
  const { forModel } = store.room;
  store.room.forModel = async (...args) => {
    for (const kept of await store.manifests.all()) await store.remove(kept);
    return forModel.apply(store.room, args);
  };
  await node.weights.pull(source, true);
  expect(await node.weights.held()).toMatchObject([{ here: 2 * PIECE, pinned: true }]);
});
