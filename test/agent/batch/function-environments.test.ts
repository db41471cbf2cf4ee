/** Packed environments of functions, from the pieces of a gateway to the Python that runs. */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { installEnvironment, pythonIn } from '../../../agent/batch/functions/function-environments.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

afterEach(endAll);

const PIECES: Readonly<Record<string, string>> = { 'file-1': 'the first, ', 'file-2': 'the second' };
const WHOLE = Object.values(PIECES).join('');
const SHA256 = createHash('sha256').update(WHOLE).digest('hex');

async function installed(sha256: string, pieces: readonly string[], signal = new AbortController().signal) {
  const parent = await temporaryDirectory('environments');
  const directory = join(parent, 'one');
  mkdirSync(directory);
  const copied: [string, number][] = [];
  const copy = async (id: string, path: string, most: number) => {
    copied.push([id, most]);
    writeFileSync(path, PIECES[id] ?? '', { flag: 'wx' });
  };
  const unpack = async (archive: string, to: string) => {
    mkdirSync(to);
    writeFileSync(join(to, 'archive'), readFileSync(archive));
  };
  const result = installEnvironment({ sha256, pieces, copy }, directory, unpack, signal).then(
    () => 'installed',
    (error: unknown) => String(error),
  );
  return { result: await result, parent, directory, copied };
}

it('the pieces of an archive are joined in their order, checked and unpacked, and nothing else stays', async () => {
  const { result, parent, directory, copied } = await installed(SHA256, ['file-1', 'file-2']);
  expect(result).toBe('installed');
  expect(copied).toEqual([
    ['file-1', 64 * 2 ** 20],
    ['file-2', 64 * 2 ** 20],
  ]);
  expect(readFileSync(join(directory, 'environment/archive'), 'utf8')).toBe(WHOLE);
  expect(readdirSync(parent)).toEqual(['one']);
});

it.each([
  ['in another order', ['file-2', 'file-1']],
  ['without its last piece', ['file-1']],
])('an archive %s is not unpacked', async (_, pieces) => {
  const { result, parent, directory } = await installed(SHA256, pieces);
  expect(result).toContain('are not the archive that the function declares');
  expect([readdirSync(parent), readdirSync(directory)]).toEqual([['one'], []]);
});

it('an agent that ends copies no further piece', async () => {
  const { result, copied, parent } = await installed(SHA256, ['file-1'], AbortSignal.abort());
  expect(result).toContain('AbortError');
  expect([copied, readdirSync(parent)]).toEqual([[], ['one']]);
});

it('the Python is in bin, of the archive or of its only directory', async () => {
  const found: (string | undefined)[] = [];
  for (const place of ['environment/bin', 'environment/env-1.0/bin', 'environment/lib/deep/bin']) {
    const directory = await temporaryDirectory('environments');
    const bin = join(directory, place);
    mkdirSync(bin, { recursive: true });
    writeFileSync(join(bin, 'python3.12'), '');
    symlinkSync('python3.12', join(bin, 'python'));
    found.push((await pythonIn(directory))?.slice(directory.length));
  }
  expect(found).toEqual(['/environment/bin/python', '/environment/env-1.0/bin/python', undefined]);
});
