import { access, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
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
