import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { afterEach, expect, it } from 'vitest';
import { relocate } from '../../../agent/weights/environment/relocate-environment.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { BIN, type Entry, PACKED, tarOf, withoutEnd, withType } from './archives.ts';
import { Cluster, type Node } from './cluster.ts';

afterEach(endAll);

const pinnedAt = async ({ weights }: Node) => (await weights.held()).filter(({ pinned }) => pinned);

async function packed(bytes: Buffer, name = 'env.tar'): Promise<string> {
  const path = join(await temporaryDirectory('otela-packed'), name);
  await writeFile(path, bytes);
  return path;
}

const unpackedIn = async (node: Node) =>
  (await readdir(join(node.directory, '.otela', 'environments'))).filter((name) => !name.endsWith('.lock'));

const LARGE = randomBytes(300 * 1024);
const WHOLE: Entry[] = [
  { path: './', type: 'Directory' },
  ...BIN,
  { path: './bin/python', type: 'SymbolicLink', linkpath: 'python3' },
  { path: 'bin/tool', content: '#!/where/it/was/bin/python3\nprint(1)\n', mode: 0o4755 },
  { path: 'bin/system', content: '#!/usr/bin/python3\n', mode: 0o755 },
  { path: 'lib/libx.so.1.2', content: 'library' },
  { path: 'lib/libx.so.1', type: 'SymbolicLink', linkpath: 'libx.so.1.2' },
  { path: 'lib/libx.so', type: 'SymbolicLink', linkpath: 'libx.so.1' },
  { path: 'lib64', type: 'SymbolicLink', linkpath: 'lib' },
  { path: 'lib/same', type: 'Link', linkpath: './lib/libx.so.1.2' },
  { path: 'lib/large', content: LARGE },
  { path: 'lib/empty', content: '' },
];

it.each(Object.entries(PACKED))(
  'an environment packed as %s is unpacked, and scripts find its Python',
  async (name, pack) => {
    const [first, second] = await new Cluster().of(2);
    const path = await packed(pack(tarOf(...WHOLE)), `env${name}`);
    const source = `dir:${path}`;
    if (first === undefined || second === undefined) return expect.unreachable();
    await first.weights.environment(source);
    await rm(path);
    const there = await second.weights.environment(source);
    expect(second.read).toBe(0);
    expect(there.status).toMatchObject({ state: 'done', from_source: 0 });
    expect(there.variables).toMatchObject({ VIRTUAL_ENV: there.path });
    expect(there.variables.PATH?.startsWith(join(there.path, 'bin'))).toBe(true);
    const read = (file: string) => readFile(join(there.path, file), 'utf8');
    expect(await read('bin/tool')).toBe(`#!${there.path}/bin/python3\nprint(1)\n`);
    expect(await read('bin/system')).toBe('#!/usr/bin/python3\n');
    expect((await stat(join(there.path, 'bin/tool'))).mode & 0o7777).toBe(0o755);
    expect(await readlink(join(there.path, 'bin/python'))).toBe('python3');
    expect(await read('lib64/libx.so')).toBe('library');
    expect(await read('lib/same')).toBe('library');
    expect((await readFile(join(there.path, 'lib/large'))).equals(LARGE)).toBe(true);
    expect(await read('lib/empty')).toBe('');
  },
);

it('one that is there is not unpacked again, also not for two that want it at once', async () => {
  const directory = await temporaryDirectory('otela-weights');
  const cluster = new Cluster();
  const [one, other] = [await cluster.add({ directory }), await cluster.add({ directory })];
  const source = `dir:${await packed(tarOf(...WHOLE))}`;
  const both = await Promise.all([one.weights.environment(source), other.weights.environment(source)]);
  expect(both.filter(({ unpackedBytes }) => unpackedBytes > 0)).toHaveLength(1);
  expect((await one.weights.environment(source)).unpackedBytes).toBe(0);
});

it('a folder packed with its name is found', async () => {
  const node = await new Cluster().add();
  const inside = BIN.map((entry) => ({ ...entry, path: `venv/${entry.path}` }));
  const { path } = await node.weights.environment(`dir:${await packed(tarOf(...inside))}`);
  expect(path.endsWith('/venv')).toBe(true);
});

it('an image is left packed: its runtime opens it', async () => {
  const node = await new Cluster().add();
  const sif = Buffer.alloc(4096);
  sif.write('#!/usr/bin/env run-singularity\n');
  sif.write('SIF_MAGIC', 32);
  const { path, variables } = await node.weights.environment(`dir:${await packed(sif, 'vllm.sif')}`);
  expect((await readFile(path)).equals(sif)).toBe(true);
  expect(path.endsWith('/vllm.sif')).toBe(true);
  expect(variables).toEqual({});
  expect(await unpackedIn(node)).toEqual([]);
});

it('conda-unpack runs where there is one, with the environment’s own programs first', async () => {
  const node = await new Cluster().add();
  const script = '#!/bin/sh\nprintf "%s %s" "$CONDA_PREFIX" "$PATH" > "$CONDA_PREFIX/told"\n';
  const source = tarOf(
    ...BIN,
    { path: 'conda-meta/history', content: '' },
    { path: 'bin/conda-unpack', content: script, mode: 0o755 },
  );
  const { path, variables } = await node.weights.environment(`dir:${await packed(source)}`);
  expect(variables).toMatchObject({ CONDA_PREFIX: path });
  expect(await readFile(join(path, 'told'), 'utf8')).toContain(`${path} ${path}/bin`);
});

const link = (path: string, linkpath: string): Entry => ({ path, type: 'SymbolicLink', linkpath });
const HOSTILE: [string, Entry[], RegExp][] = [
  ['an absolute path', [{ path: '/tmp/evil', content: 'x' }], /points out of the environment/],
  ['..', [{ path: 'bin/../../evil', content: 'x' }], /points out of the environment/],
  ['a symlink to an absolute path', [link('evil', '/etc')], /outside the environment/],
  ['a symlink with ..', [link('bin/evil', '../../..')], /outside the environment/],
  ['a file below a symlink', [link('evil', 'bin'), { path: 'evil/x', content: 'x' }], /not a directory/],
  [
    'a symlink that leads out through another',
    // Textually it leads to the environment itself; but `here` is `bin`.
    [link('bin/here', '.'), link('bin/evil', 'here/../..')],
    /is a link that points out/,
  ],
  [
    'a symlink that leads out through another, to where nothing is yet',
    [link('bin/here', '.'), link('bin/evil', 'here/../../not-there')],
    /is a link that points out/,
  ],
  [
    'a hard link out of it',
    [{ path: 'evil', type: 'Link', linkpath: '../../../etc/passwd' }],
    /not a file in the archive/,
  ],
  [
    'a hard link to a symlink',
    [link('a', 'bin'), { path: 'b', type: 'Link', linkpath: 'a' }],
    /not a file in the archive/,
  ],
  ['a device', [{ path: 'evil', type: 'CharacterDevice' }], /CharacterDevice/],
  ['a pipe', [{ path: 'evil', type: 'FIFO' }], /FIFO/],
  ['a file that stands twice', [{ path: 'bin/python3', content: 'x' }], /twice/],
  ['a line break in a name', [{ path: 'a\nb', content: 'x' }], /not a valid name/],
];
it.each(HOSTILE)('an archive with %s is refused, and nothing of it stays', async (_what, entries, why) => {
  const node = await new Cluster().add();
  const source = `dir:${await packed(tarOf(...BIN, ...entries))}`;
  await expect(node.weights.environment(source)).rejects.toMatchObject({
    code: 'wrong',
    message: expect.stringMatching(why),
  });
  expect(await unpackedIn(node)).toEqual([]);
  expect(await pinnedAt(node)).toEqual([]);
  expect(node.weights.status().at(-1)).toMatchObject({ state: 'failed', trouble: expect.stringMatching(why) });
});

it('the Python of a venv that is a symlink is refused with what to do', async () => {
  const node = await new Cluster().add();
  const source = `dir:${await packed(tarOf({ path: 'bin/python3', type: 'SymbolicLink', linkpath: '/usr/bin/python3' }))}`;
  await expect(node.weights.environment(source)).rejects.toThrow(/--copies/);
});

const MIB = 1024 * 1024;
it.each([
  ['one file of zeros', () => gzipSync(tarOf(...BIN, { path: 'zeros', content: Buffer.alloc(100 * MIB) }))],
  ['zeros behind its end', () => gzipSync(Buffer.concat([tarOf(...BIN), Buffer.alloc(100 * MIB)]))],
])('a small archive that unpacks to more than there is room for is stopped: %s', async (_what, make) => {
  const node = await new Cluster().add({ config: { limitBytes: 80 * MIB } });
  const source = `dir:${await packed(make())}`;
  await expect(node.weights.environment(source)).rejects.toMatchObject({ code: 'full' });
  expect(await unpackedIn(node)).toEqual([]);
  expect(await pinnedAt(node)).toEqual([]);
});

const GOOD = gzipSync(tarOf(...WHOLE));
/** More than the parser reads ahead. */
const BEHIND = tarOf({ path: 'lib/behind', content: randomBytes(MIB / 2) });
const MISPRINTED = withoutEnd(tarOf({ path: 'a', content: '' })).fill('b', 0, 1);
it.each([
  ['cut off', GOOD.subarray(0, GOOD.length - 100_000), /damaged/],
  ['cut off within a file', tarOf(...WHOLE).subarray(0, 100_000), /damaged/],
  ['with wrong bytes', Buffer.concat([GOOD.subarray(0, 5000), randomBytes(GOOD.length - 5000)]), /damaged/],
  ['with a wrong header before a file', Buffer.concat([withoutEnd(tarOf(...BIN)), MISPRINTED, BEHIND]), /damaged/],
  [
    'with a sparse file before another',
    Buffer.concat([withoutEnd(tarOf(...BIN)), withType('S', { path: 'a', content: 'x' }), BEHIND]),
    /unsupported type SparseFile/,
  ],
  [
    'with a sparse file of the form that looks like any other',
    tarOf(...BIN, { path: 'lib/GNUSparseFile.4711/libx.so', content: '1\n0\n4\nmore' }),
    /without --sparse/,
  ],
  ['packed twice with gzip', gzipSync(GOOD), /compressed twice/],
  ['packed with zstd and then gzip', gzipSync(zstdCompressSync(tarOf(...WHOLE))), /compressed twice/],
  ['of less than a block', gzipSync('x'), /damaged/],
  ['of another kind', randomBytes(5000), /is not a \.tar/],
  ['packed with xz', Buffer.from('fd377a585a00', 'hex'), /xz/],
  ['empty', Buffer.alloc(0), /is not a \.tar/],
  ['without bin', tarOf({ path: 'a/b', content: 'x' }, { path: 'c', content: 'x' }), /no directory bin/],
])('an archive %s is refused', async (_what, bytes, why) => {
  const node = await new Cluster().add();
  const source = `dir:${await packed(bytes)}`;
  await expect(node.weights.environment(source)).rejects.toMatchObject({
    code: 'wrong',
    message: expect.stringMatching(why),
  });
  expect(await unpackedIn(node)).toEqual([]);
});

it('scripts find their Python also where one of the two paths is too long for a first line', async () => {
  const [short, long] = ['env', `an env/${'x'.repeat(120)}`].map((name) => `/where/it/was/${name}/bin/python3`);
  const scripts = { short: `#!${short}\n`, long: `#!/bin/sh\n'''exec' "${long}" "$0" "$@"\n' '''\n` };
  for (const folder of ['env', `an env/${'y'.repeat(120)}`]) {
    const prefix = join(await temporaryDirectory('otela-moved'), folder);
    const bin = join(prefix, 'bin');
    await mkdir(bin, { recursive: true });
    // In place of Python, which would read the script.
    await writeFile(join(bin, 'python3'), '#!/bin/sh\necho "$@"\n', { mode: 0o755 });
    for (const [name, head] of Object.entries(scripts))
      await writeFile(join(bin, name), `${head}# \xe4\n`, { mode: 0o755, encoding: 'latin1' });
    await relocate(prefix, { isTrusted: true, env: {}, signal: new AbortController().signal });
    for (const name of Object.keys(scripts)) {
      const { stdout } = await promisify(execFile)(join(bin, name), ['an argument']);
      expect(stdout).toBe(`${join(bin, name)} an argument\n`);
      const lines = (await readFile(join(bin, name), 'latin1')).split('\n');
      expect(lines[0]?.length).toBeLessThan(127);
      expect(lines.at(-2)).toBe('# \xe4');
    }
  }
});

it('a directory is no environment', async () => {
  const node = await new Cluster().add();
  const path = await packed(tarOf(...BIN), 'a');
  await writeFile(join(path, '..', 'b'), 'x');
  await expect(node.weights.environment(`dir:${join(path, '..')}`)).rejects.toThrow(/contains 2 files/);
  expect(await pinnedAt(node)).toEqual([]);
});

it('one that is not used for longest goes with its archive, and one in use stays', async () => {
  const cluster = new Cluster();
  const directory = await temporaryDirectory('otela-weights');
  const sizes = (content: Buffer) => tarOf(...BIN, { path: 'lib/data', content });
  const old = `dir:${await packed(sizes(randomBytes(MIB)))}`;
  const before = await cluster.add({ directory });
  await before.weights.environment(old);
  const [, unpacked] = await unpackedIn(before);
  expect(unpacked).toBeDefined();
  expect(await before.weights.store.used()).toBeGreaterThan(2 * MIB);
  // In use: the pull is refused, and the existing content stays.
  const small = await cluster.add({ directory, config: { limitBytes: 3 * MIB } });
  const next = `dir:${await packed(randomBytes(1.5 * MIB), 'model')}`;
  await expect(small.weights.pull(next)).rejects.toMatchObject({ code: 'full' });
  expect(await unpackedIn(small)).toHaveLength(2);
  // Its user is gone.
  await rm(join(directory, '.otela', 'pins'), { recursive: true });
  const later = await cluster.add({ directory, config: { limitBytes: 3 * MIB } });
  await later.weights.pull(next);
  expect(await unpackedIn(later)).toEqual([]);
});

it('one that was half unpacked when its process was killed is unpacked anew', async () => {
  const node = await new Cluster().add();
  const source = `dir:${await packed(tarOf(...WHOLE))}`;
  const { path } = await node.weights.environment(source);
  await rm(`${path}.json`);
  await writeFile(join(path, 'left over'), 'x');
  const again = await node.weights.environment(source);
  expect(again.path).toBe(path);
  expect(await readdir(path)).not.toContain('left over');
});
