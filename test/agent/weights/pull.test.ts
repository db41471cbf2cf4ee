import { randomBytes } from 'node:crypto';
import { mkdir, readFile, readlink, rename, rm, symlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { Cluster, hubFolder, PIECE, plainFolder } from './cluster.ts';

afterEach(endAll);

const MODEL = {
  'config.json': Buffer.from('{}'),
  'model.safetensors': randomBytes(PIECE * 5 + 17),
  'a/empty': Buffer.alloc(0),
};

it('a node alone copies a directory, in the layout of a Hugging Face cache', async () => {
  const node = await new Cluster().add();
  const { path } = await node.weights.pull(`dir:${await hubFolder(MODEL)}`);
  for (const [name, bytes] of Object.entries(MODEL))
    expect((await readFile(join(path, name))).equals(bytes), name).toBe(true);
  expect(node.read).toBe(PIECE * 5 + 17 + 2);
});

it('folders behind symlinks come as well, each once', async () => {
  const shared = await plainFolder({ 'tokenizer.json': Buffer.from('shared') });
  const folder = await plainFolder({ 'model.safetensors': randomBytes(PIECE), 'a/b': Buffer.from('b') });
  await symlink(shared, join(folder, 'tokenizer'));
  await symlink(folder, join(folder, 'a/again'));
  const { path, manifest } = await (await new Cluster().add()).weights.pull(`dir:${folder}`);
  expect(manifest.files.map((file) => file.path)).toEqual(['a/b', 'model.safetensors', 'tokenizer/tokenizer.json']);
  expect(await readFile(join(path, 'tokenizer/tokenizer.json'), 'utf8')).toBe('shared');
});

it('a folder of a cache that was fetched by a tag stands for its only snapshot', async () => {
  const folder = join(await temporaryDirectory(), 'models--lab--model');
  await rename(await hubFolder(MODEL), folder);
  await rename(join(folder, 'refs/main'), join(folder, 'refs/v1'));
  // Its links name the place where it was created.
  for (const name of ['config.json', 'model.safetensors']) {
    const link = join(folder, 'snapshots', 'c'.repeat(40), name);
    const blob = basename(await readlink(link));
    await rm(link);
    await symlink(join(folder, 'blobs', blob), link);
  }
  await rm(join(folder, 'snapshots', 'c'.repeat(40), 'a'), { recursive: true });
  const node = await new Cluster().add();
  const { manifest } = await node.weights.pull(`dir:${folder}`);
  expect(manifest.files.map(({ path }) => path)).toEqual(['config.json', 'model.safetensors']);
  await mkdir(join(folder, 'snapshots', 'e'.repeat(40)));
  await expect((await new Cluster().add()).weights.pull(`dir:${folder}`)).rejects.toThrow('name one');
});

it.each([
  ['a folder of a Hugging Face cache', hubFolder],
  ['a plain directory', plainFolder],
])('of twelve nodes that pull at once one reads the source, once: %s', async (_what, folder) => {
  const nodes = await new Cluster().of(12);
  const source = `dir:${await folder(MODEL)}`;
  const pulled = await Promise.all(nodes.map((node) => node.weights.pull(source)));
  for (const { path } of pulled)
    expect((await readFile(join(path, 'model.safetensors'))).equals(MODEL['model.safetensors'])).toBe(true);
  expect(nodes.reduce((sum, { read }) => sum + read, 0)).toBe(PIECE * 5 + 17 + 2);
  expect(nodes.reduce((sum, { lists }) => sum + lists, 0)).toBe(1);
  expect(Math.max(...nodes.map(({ weights }) => weights.uploads.peak))).toBeLessThanOrEqual(2);
});
