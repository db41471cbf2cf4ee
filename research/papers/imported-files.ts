/** The files on which a kept result depends. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

const IMPORT = /(?:from|import) '(\.[^']+\.ts)'/g;

/** A source file and all its imports, transitively. */
export function filesOf(path: string, found = new Set<string>()): Set<string> {
  if (found.has(path)) return found;
  found.add(path);
  for (const [, imported = ''] of readFileSync(path, 'utf8').matchAll(IMPORT))
    filesOf(resolve(dirname(path), imported), found);
  return found;
}

/** The files of a folder, without those of its folders. */
export const filesIn = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ name }) => join(folder, name))
    .sort();

export function hashOf(contents: readonly (string | Buffer)[]): string {
  const hash = createHash('sha256');
  for (const one of contents) hash.update(createHash('sha256').update(one).digest());
  return hash.digest('hex');
}
