import { access, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { Cluster } from './cluster.ts';

afterEach(endAll);

it('two models whose folder of the cache is one: that one goes leaves the other whole', async () => {
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
