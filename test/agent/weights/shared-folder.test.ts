import { randomBytes } from 'node:crypto';
import { access, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { Cluster, PIECE, plainFolder } from './cluster.ts';

afterEach(endAll);

it('if two models share a folder of the cache, deleting one leaves the other intact', async () => {
  const root = await temporaryDirectory('otela-source');
  for (const name of ['a b', 'a--b']) {
    await mkdir(join(root, name));
    await writeFile(join(root, name, 'weights'), name);
  }
  const node = await new Cluster().add();
  const first = await node.weights.pull(`dir:${root}/a b`);
  const second = await node.weights.pull(`dir:${root}/a--b`, true); // an engine runs from it
  await node.weights.remove(`dir:${root}/a b`);
  expect(await readFile(join(second.path, 'weights'), 'utf8')).toBe('a--b');
  await expect(access(first.path)).rejects.toMatchObject({ code: 'ENOENT' });
  expect(await readdir(join(second.path, '..', '..', 'blobs'))).toHaveLength(1);
});

it('what another program keeps in the same folder of the cache stays when the model goes, and an empty folder goes', async () => {
  const node = await new Cluster().add();
  const source = `dir:${await plainFolder({ 'deep/a': randomBytes(PIECE) })}`;
  const { path } = await node.weights.pull(source);
  const folder = join(path, '..', '..');
  const others = [join(folder, 'snapshots', 'other', 'b'), join(folder, 'blobs', 'b'), join(path, 'deep', 'b')];
  for (const other of others) {
    await mkdir(join(other, '..'), { recursive: true });
    await writeFile(other, 'b');
  }
  await node.weights.remove(source);
  for (const other of others) expect(await readFile(other, 'utf8')).toBe('b');
  await expect(access(join(path, 'deep', 'a'))).rejects.toMatchObject({ code: 'ENOENT' });
  expect(await readdir(join(folder, 'blobs'))).toEqual(['b']);
  const alone = await node.weights.pull(`dir:${await plainFolder({ 'deep/a': randomBytes(PIECE) })}`);
  await node.weights.remove(alone.manifest.source);
  await expect(access(join(alone.path, '..', '..'))).rejects.toMatchObject({ code: 'ENOENT' });
});

it('two agents that share a folder and pull a model at once fetch it once, and both have it', async () => {
  const cluster = new Cluster();
  const directory = await temporaryDirectory('otela-weights');
  const bytes = randomBytes(20 * PIECE);
  const source = `dir:${await plainFolder({ a: bytes, b: randomBytes(PIECE) })}`;
  const [first, second] = [await cluster.add({ directory }), await cluster.add({ directory })];
  const paths = await Promise.all([first, second].map(async (node) => (await node.weights.pull(source, true)).path));
  expect(paths[0]).toBe(paths[1]);
  expect((await readFile(join(paths[0] ?? '', 'a'))).equals(bytes)).toBe(true);
  expect(first.read + second.read).toBe(21 * PIECE);
  // An agent may not delete content that another one has in use.
  await expect(second.weights.remove(source)).rejects.toMatchObject({ code: 'refused' });
});

it('a folder that another user made is refused: they could change what engines run', async () => {
  const directory = await temporaryDirectory('otela-weights');
  await mkdir(join(directory, '.otela'), { mode: 0o777 });
  const { uid } = await stat(directory);
  const other = vi.spyOn(process, 'getuid').mockReturnValue(uid + 1);
  try {
    await expect(new Cluster().add({ directory })).rejects.toThrow(`belongs to another user (uid ${uid})`);
  } finally {
    other.mockRestore();
  }
  expect(await readdir(join(directory, '.otela'))).toEqual([]);
  await new Cluster().add({ directory });
});
