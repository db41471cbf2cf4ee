import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { endAll } from '../../support/processes.ts';
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
