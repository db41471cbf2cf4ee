/** Packages of functions travel like weights: installed by one node of a cluster, copied by the others. */
import { mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { PackagesSource } from '../../../agent/weights/sources/packages-source.ts';
import { promise } from '../../support/patience.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { Cluster, type Node, QUICK, sha256 } from './cluster.ts';

afterEach(endAll);

const SOURCE = `packages:${sha256(Buffer.from('numpy==2.4.0'))}`;
const LONG = `${'long-name/'.repeat(15)}module.py`;
const WITHIN_MS = promise(30_000);

async function install(directory: string): Promise<void> {
  await mkdir(join(directory, LONG, '..'), { recursive: true });
  await writeFile(join(directory, LONG), 'x = 1\n');
  await writeFile(join(directory, 'bin/tool'), '#!/usr/bin/python3\n', { mode: 0o755 });
  await symlink('tool', join(directory, 'bin/other'));
}

/** Counts the installations of all nodes. */
function packer(node: Node, counter: { installed: number }, how = install, source = SOURCE): PackagesSource {
  const scratch = join(node.directory, '.otela/packing');
  return new PackagesSource({
    source,
    scratch,
    withinMs: WITHIN_MS,
    install: async (directory) => {
      counter.installed++;
      await how(directory);
    },
  });
}

async function prepared(node: Node, counter: { installed: number }, how = install): Promise<string> {
  const packing = packer(node, counter, how);
  try {
    return (await node.weights.environment(SOURCE, packing)).path;
  } finally {
    await packing.close();
  }
}

it('one node installs packages, however long it takes; the others wait and copy its archive', async () => {
  const nodes = await new Cluster().of(3, { weights: { limits: QUICK } });
  const counter = { installed: 0 };
  const slowly = async (directory: string) => {
    await new Promise((resolve) => setTimeout(resolve, 2 * QUICK.sourceAfterMs));
    await install(directory);
  };
  const paths = await Promise.all(nodes.map((node) => prepared(node, counter, slowly)));
  expect(counter.installed).toBe(1);
  for (const path of paths) {
    expect(await readFile(join(path, LONG), 'utf8')).toBe('x = 1\n');
    expect(await readFile(join(path, 'bin/other'), 'utf8')).toBe('#!/usr/bin/python3\n');
    expect((await stat(join(path, 'bin/tool'))).mode & 0o777).toBe(0o755);
  }
  for (const { directory } of nodes)
    expect(await readdir(join(directory, '.otela/packing')).catch(() => [])).toEqual([]);
  const [again] = nodes;
  if (again !== undefined) await prepared(again, counter);
  expect(counter.installed).toBe(1);
});

it('a node of another provider neither gets nor gives packages: it could read them, or put code into them', async () => {
  const cluster = new Cluster();
  const [own, foreign] = [await cluster.add({ provider: 'lab' }), await cluster.add({ provider: 'other' })];
  const counter = { installed: 0 };
  await prepared(foreign, counter, async (directory) => {
    await install(directory);
    await writeFile(join(directory, 'evil.py'), '');
  });
  const path = await prepared(own, counter);
  expect(counter.installed).toBe(2);
  expect(await readdir(path)).not.toContain('evil.py');
});

it('a program of a package does not run on the node, whatever its name', async () => {
  const nodes = await new Cluster().of(2);
  const paths = await Promise.all(
    nodes.map((node) =>
      prepared(node, { installed: 0 }, async (directory) => {
        await install(directory);
        const script = '#!/bin/sh\ntouch "$(dirname "$0")/../ran"\n';
        await writeFile(join(directory, 'bin/conda-unpack'), script, { mode: 0o755 });
      }),
    ),
  );
  for (const path of paths) {
    expect(await readdir(path)).not.toContain('ran');
    expect(await readdir(join(path, 'bin'))).toContain('conda-unpack');
  }
});

it('a failed installation says what the installer said, and leaves nothing', async () => {
  const node = await new Cluster().add();
  const failing = async () => {
    throw new Error('no wheel of torch==99');
  };
  await expect(prepared(node, { installed: 0 }, failing)).rejects.toThrow('no wheel of torch==99');
  expect(await readdir(join(node.directory, '.otela/packing'))).toEqual([]);
  const counter = { installed: 0 };
  await prepared(node, counter);
  expect(counter.installed).toBe(1);
});

it('packages that a process uses are not deleted; after its end they may be', async () => {
  const node = await new Cluster().add();
  await prepared(node, { installed: 0 });
  await expect(node.weights.remove(SOURCE)).rejects.toThrow('in use');
  await node.weights.release(SOURCE);
  expect(await node.weights.remove(SOURCE)).toBeGreaterThan(0);
});

async function collected(from: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of from) parts.push(part);
  return Buffer.concat(parts);
}

const archive = async (source: PackagesSource, offset: number): Promise<Buffer> => {
  const { signal } = new AbortController();
  const [file] = (await source.list(signal)).files;
  if (file === undefined) return expect.unreachable();
  return collected(source.read(file, { revision: '', offset }, signal));
};

it('equal files make equal archives, from any offset, so another node can continue one', async () => {
  const scratch = await temporaryDirectory('otela-packing');
  const make = (how: (directory: string) => Promise<void>) =>
    new PackagesSource({ source: SOURCE, scratch, withinMs: WITHIN_MS, install: how });
  const whole = await archive(make(install), 0);
  const rest = await archive(
    make(async (directory) => {
      await writeFile(join(directory, 'bin/tool'), '', { mode: 0o755 });
      await install(directory);
    }),
    1_000,
  );
  expect(rest.equals(whole.subarray(1_000))).toBe(true);
});

it('if the packer left, another node installs again; with other files it starts again', async () => {
  const node = await new Cluster().add();
  const { signal } = new AbortController();
  const counter = { installed: 0 };
  const first = packer(node, counter);
  const [file] = (await first.list(signal)).files;
  await first.close();
  if (file === undefined) return expect.unreachable();
  const read = (source: PackagesSource) => collected(source.read(file, { revision: '', offset: 0 }, signal));
  const again = packer(node, counter);
  expect(sha256(await read(again))).toBe(file.key);
  expect(counter.installed).toBe(2);
  const changed = packer(node, counter, (directory) => writeFile(join(directory, 'other.py'), ''));
  await expect(read(changed)).rejects.toMatchObject({ code: 'changed' });
});

it('only a node that runs the function packs: a source named on a command line has no packages', async () => {
  const node = await new Cluster().add();
  await expect(node.weights.pull(SOURCE)).rejects.toThrow('is packed only by nodes that run its function');
});
