/** Files in the directory from which the agent collects them. The function's process may be hostile. */
import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it, onTestFinished } from 'vitest';
import { FunctionFrameReader } from '../../../agent/batch/functions/function-frames.ts';
import { OutputFolder, OutputRefusedError } from '../../../agent/batch/functions/output-folder.ts';
import { temporaryDirectory } from '../../support/processes.ts';

const MOST_BYTES = 1_000;
const EMPTY_SHA256 = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

async function opened() {
  const parent = await temporaryDirectory('outputs');
  const folder = new OutputFolder(parent, MOST_BYTES);
  onTestFinished(() => folder.close());
  const collect = (path: string, name = 'a.txt') =>
    folder.collect({ path, name }, async ({ content, bytes, sha256 }) => ({
      bytes,
      sha256,
      said: await text(content()),
    }));
  return { parent, folder, collect, at: (path: string) => join(folder.directory, path) };
}

it('are read with their hash, as often as it takes, and deleted', async () => {
  const { folder, at } = await opened();
  writeFileSync(at('a1'), 'hello');
  const said = await folder.collect({ path: 'a1', name: 'a.txt' }, async ({ content, bytes, sha256, name }) => [
    [await text(content()), await text(content())],
    [name, bytes, sha256],
  ]);
  expect(said).toEqual([
    ['hello', 'hello'],
    ['a.txt', 5, '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824'],
  ]);
  expect(readdirSync(folder.directory)).toEqual([]);
});

it('may be empty', async () => {
  const { collect, at } = await opened();
  writeFileSync(at('a1'), '');
  expect(await collect('a1')).toEqual({ bytes: 0, sha256: EMPTY_SHA256, said: '' });
});

it.each([
  ['a link to a file of the agent', (path: string) => symlinkSync('/etc/hostname', path)],
  ['a directory', (path: string) => mkdirSync(path)],
  ['a pipe without a writer', (path: string) => execFileSync('mkfifo', [path])],
  ['a sparse file of a terabyte', (path: string) => [writeFileSync(path, ''), truncateSync(path, 2 ** 40)]],
  ['missing', () => {}],
])('that are %s are refused at once, and nothing is read', async (_, make) => {
  const { collect, at } = await opened();
  make(at('a1'));
  await expect(collect('a1')).rejects.toThrow(OutputRefusedError);
});

it.skipIf(process.getuid?.() !== 0)('that are a device are refused', async () => {
  const { collect, at } = await opened();
  execFileSync('mknod', [at('a1'), 'c', '1', '5']);
  await expect(collect('a1')).rejects.toThrow('not a regular file');
});

it.each(['../a', 'a/b', 'a\nb', 'a\u0000', 'a\u202eb', '\ud800', '..', '', 'x'.repeat(256)])(
  'with the name %j are refused, and deleted',
  async (name) => {
    const { collect, at } = await opened();
    writeFileSync(at('a1'), 'x');
    await expect(collect('a1', name)).rejects.toThrow('the name of a file must have');
  },
);

it('that grow while they are sent give the bytes that were hashed', async () => {
  const { folder, at } = await opened();
  writeFileSync(at('a1'), 'hello');
  const said = await folder.collect({ path: 'a1', name: 'a' }, async ({ content }) => {
    appendFileSync(at('a1'), 'more');
    return text(content());
  });
  expect(said).toBe('hello');
});

it('are read from the directory that the agent made, although the process put a link in its place', async () => {
  const { parent, folder, collect, at } = await opened();
  const secrets = join(parent, 'secrets');
  mkdirSync(secrets);
  writeFileSync(join(secrets, 'a1'), 'secret');
  writeFileSync(at('a1'), 'own');
  renameSync(folder.directory, join(parent, 'moved'));
  symlinkSync(secrets, folder.directory);
  expect((await collect('a1')).said).toBe('own');
  await expect(collect('a1')).rejects.toThrow(OutputRefusedError);
  expect(existsSync(join(secrets, 'a1'))).toBe(true);
});

it('are not read after the process has ended', async () => {
  const { folder, collect, at } = await opened();
  writeFileSync(at('a1'), 'x');
  await folder.close();
  await expect(collect('a1')).rejects.toThrow('has ended');
});

it.each([
  ['a path with directories', [{ path: '../../etc/passwd', name: 'a' }]],
  ['an absolute path', [{ path: '/etc/passwd', name: 'a' }]],
  ['65 files', Array.from({ length: 65 }, (_, i) => ({ path: i.toString(16), name: 'a' }))],
  ['a name that is a number', [{ path: 'a1', name: 1 }]],
])('whose frame has %s are no frame', (_, files) => {
  const said: unknown[] = [];
  const reader = new FunctionFrameReader(
    (frame) => said.push(frame),
    (why) => said.push(why),
  );
  reader.push(Buffer.from(`${JSON.stringify({ id: 1, outputs: [1], files: { 0: files } })}\n`));
  expect(said).toEqual(['a response that is not a frame']);
});
