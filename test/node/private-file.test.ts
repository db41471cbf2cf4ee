/** Key files: other users that can read them, and the traces of a failed write. */
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  canOthersRead,
  createPrivateFile,
  readKeyFile,
  readPrivateFile,
  writePrivateFile,
} from '../../node/private-file.ts';

let directory: string;
let file: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'private-'));
  file = join(directory, 'key');
});
afterEach(() => rmSync(directory, { recursive: true }));

const ME = 1000;
const statOf = (mode: number, uid = ME, isFile = true) => ({ mode, uid, isFile: () => isFile });

it.each([
  ['our file, ours alone', statOf(0o600), false],
  ['our file that our group can read', statOf(0o640), true],
  ['our file that all can read', statOf(0o604), true],
  ['a secret of Kubernetes: of root, for our group', statOf(0o640, 0), false],
  ['a file of root that all can read', statOf(0o644, 0), true],
  ['a pipe', statOf(0o660, ME, false), false],
])('%s', (_, stat, expected) => {
  expect(canOthersRead(stat, ME)).toBe(expected);
});

it('reads one key, and names the command for a file that others can read', () => {
  writePrivateFile(file, 'sk-1\n');
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readKeyFile(file)).toBe('sk-1');
  chmodSync(file, 0o644);
  expect(() => readPrivateFile(file)).toThrow(`other users can read it: chmod 600 ${file}`);
});

it.each(['', 'two keys', 'sk-ü'])('%j is not a key, and the message does not contain it', (text) => {
  writePrivateFile(file, text);
  expect(() => readKeyFile(file)).toThrow(/^it must contain exactly one key$/);
});

it('refuses a file of more than 64 KiB', () => {
  writePrivateFile(file, 'x'.repeat(64 * 1024 + 1));
  expect(() => readPrivateFile(file)).toThrow('it is longer than 65536 bytes');
});

it('replaces a file that others can read by one that they cannot', () => {
  writeFileSync(file, 'old', { mode: 0o644 });
  writePrivateFile(file, 'new');
  expect(readPrivateFile(file)).toBe('new');
  expect(readdirSync(directory)).toEqual(['key']);
});

it('creates a file once', () => {
  createPrivateFile(file, 'first');
  expect(() => createPrivateFile(file, 'second')).toThrow(expect.objectContaining({ code: 'EEXIST' }));
  expect(readFileSync(file, 'utf8')).toBe('first');
  expect(readdirSync(directory)).toEqual(['key']);
});

it('leaves nothing behind if the file cannot be written', () => {
  expect(() => writePrivateFile(directory, 'text')).toThrow();
  expect(readdirSync(directory)).toEqual([]);
});
