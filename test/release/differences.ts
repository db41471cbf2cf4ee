/**
 * Describes the differences between two directories, down to the file in an npm package and its first difference: two
 * checksums would not show the cause.
 */
import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { filesBelow } from '../../packaging/archives.ts';
import { temporaryDirectory } from '../support/processes.ts';

/** Characters on each side of the first difference. */
const AROUND = 80;
/**
 * A hash in the name of a bundler's file: it follows from the content, so each file that imports another one differs
 * with it.
 */
const HASH = /-[\w-]{8}(?=\.(?:m?js|css|svg|woff2)\b)/g;

/** Files that differ only because another file does; listed last. */
const FOLLOWS = /^SHA256SUMS|\.(?:br|gz): |: differs in names of other files alone$/;

const withoutHashes = (text: string) => text.replace(HASH, '-*');

export async function differences(one: string, other: string): Promise<string[]> {
  const [left, right] = await Promise.all([one, other].map((directory) => filesBelow(directory)));
  if (left === undefined || right === undefined) return [];
  const found: string[] = [];
  for (const path of left.filter((name) => !right.includes(name)))
    if (!right.some((name) => withoutHashes(name) === withoutHashes(path))) found.push(`${path}: only in ${one}`);
  const partner = counterparts(left, right);
  for (const path of right) {
    const own = partner.get(path);
    if (own === undefined) found.push(`${path}: only in ${other}`);
    else found.push(...(await between(path, join(one, own), join(other, path))));
  }
  return found.toSorted((a, b) => Number(FOLLOWS.test(a)) - Number(FOLLOWS.test(b)));
}

/**
 * Pairs each right path with the left one of the same name, otherwise with the first that has the same name apart from
 * its hash.
 */
function counterparts(left: readonly string[], right: readonly string[]): Map<string, string> {
  const free = left.filter((path) => !right.includes(path));
  return new Map(
    right.flatMap((path): [string, string][] => {
      if (left.includes(path)) return [[path, path]];
      const at = free.findIndex((name) => withoutHashes(name) === withoutHashes(path));
      return at < 0 ? [] : free.splice(at, 1).map((name) => [path, name]);
    }),
  );
}

async function between(path: string, one: string, other: string): Promise<string[]> {
  const [left, right] = await Promise.all([one, other].map((file) => readFile(file)));
  if (left === undefined || right === undefined || left.equals(right)) return [];
  if (path.endsWith('.tgz')) {
    const inside = await differences(await unpacked(one), await unpacked(other));
    return inside.length === 0 ? [`${path}: differs as an archive alone`] : inside.map((line) => `${path}: ${line}`);
  }
  const texts = [left, right].map((bytes) => withoutHashes(bytes.toString('latin1')));
  const [a = '', b = ''] = texts;
  if (a === b) return [`${path}: differs in names of other files alone`];
  let at = 0;
  while (a[at] === b[at]) at++;
  const near = (text: string) => JSON.stringify(text.slice(Math.max(0, at - AROUND), at + AROUND));
  return [`${path}: ${near(a)} is ${near(b)}`];
}

async function unpacked(archive: string): Promise<string> {
  const directory = await temporaryDirectory('otela-unpacked');
  execFileSync('tar', ['-xzf', archive, '-C', directory]);
  return directory;
}
