/**
 * A disk that is already full, in each phase of a pull: the pull fails with `full`, keeps nothing in use, and the next
 * pull succeeds.
 */
import { randomBytes } from 'node:crypto';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { mountFileSystem } from '../../support/file-system.ts';
import { endAll } from '../../support/processes.ts';
import { Cluster, hubFolder, type Node } from './cluster.ts';

afterEach(endAll);

/** Calls `fill` before the first call of a method. */
function before<K extends string>(object: Record<K, (...args: never[]) => unknown>, name: K, fill: () => void): void {
  const real = object[name].bind(object);
  object[name] = (...args) => {
    fill();
    return real(...args);
  };
}

/** A link needs no block of an in-memory file system, so a complete model may be linked on a full one. */
const PHASES: [string, 'full' | 'done', (node: Node, fill: () => void) => void][] = [
  ['its list is kept', 'full', ({ weights }, fill) => before(weights.store.manifests, 'save', fill)],
  ['it is marked as in use', 'full', ({ weights }, fill) => before(weights.store.manifests, 'pin', fill)],
  ['a blob is begun', 'full', ({ weights }, fill) => before(weights.store, 'fill', fill)],
  ['an engine’s links are made', 'full', ({ weights }, fill) => before(weights.store, 'link', fill)],
];
it.for(PHASES)('when %s', async ([, expected, fillAt], { skip }) => {
  const disk = mountFileSystem({ sizeMiB: 4 });
  if (typeof disk === 'string') return skip(disk);
  const bytes = randomBytes(1024 * 1024);
  const source = `dir:${await hubFolder({ 'model.safetensors': bytes })}`;
  const node = await new Cluster().add({ directory: join(disk.path, 'weights') });
  fillAt(node, () => disk.fill(0));
  const ended = node.weights.pull(source, true);
  if (expected === 'full') await expect(ended).rejects.toMatchObject({ code: 'full' });
  else await ended;
  expect((await node.weights.held()).filter(({ pinned }) => pinned)).toHaveLength(expected === 'full' ? 0 : 1);
  disk.empty();
  const next = await new Cluster().add({ directory: node.directory });
  const { path } = await next.weights.pull(source);
  expect((await readFile(join(path, 'model.safetensors'))).equals(bytes)).toBe(true);
  // No partial file is left.
  const left = await readdir(join(node.directory, '.otela', 'blobs'));
  expect(left.filter((name) => name.includes('.lock') || name.endsWith('.part'))).toEqual([]);
});

const NEXT_BYTES = 512 * 1024;
it.for([
  ['has no byte left', 0],
  // Besides its list, its mark and the lock the model fits to the byte; the records of its blob do not.
  ['has room for the bytes alone', NEXT_BYTES + 4 * 4096],
] as const)('what was not used for longest makes room on a disk that %s', async ([, left], { skip }) => {
  const disk = mountFileSystem({ sizeMiB: 4 });
  if (typeof disk === 'string') return skip(disk);
  const directory = join(disk.path, 'weights');
  const old = `dir:${await hubFolder({ a: randomBytes(1024 * 1024) })}`;
  const next = `dir:${await hubFolder({ b: randomBytes(NEXT_BYTES) })}`;
  const before = await new Cluster().add({ directory });
  await before.weights.pull(old);
  await before.close();
  disk.fill(left);
  const node = await new Cluster().add({ directory });
  await node.weights.pull(next, true);
  expect(await node.weights.held()).toMatchObject([{ source: next, here: NEXT_BYTES, pinned: true }]);
  expect(node.log.join('\n')).toContain('evicted');
  // Content in use stays.
  disk.fill(0);
  await expect(node.weights.pull(old)).rejects.toMatchObject({ code: 'full' });
  expect(await node.weights.held()).toMatchObject([{ source: next, here: NEXT_BYTES }]);
});

it('a model is deleted from a disk that is full, and so is what an agent that starts finds without a model', async ({
  skip,
}) => {
  const disk = mountFileSystem({ sizeMiB: 4 });
  if (typeof disk === 'string') return skip(disk);
  const directory = join(disk.path, 'weights');
  const node = await new Cluster().add({ directory });
  const sources = await Promise.all(
    ['a', 'b'].map(async (name) => `dir:${await hubFolder({ [name]: randomBytes(1024 * 1024) })}`),
  );
  for (const source of sources) await node.weights.pull(source);
  disk.fill(0);
  expect(await node.weights.remove(sources[0])).toBeGreaterThan(1024 * 1024);
  await rm(join(directory, '.otela', 'manifests'), { recursive: true });
  disk.fill(0);
  const next = await new Cluster().add({ directory });
  expect(await next.weights.store.used()).toBe(0);
});
