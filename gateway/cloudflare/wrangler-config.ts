/**
 * Creates wrangler.toml for one installation: the clone's file with the installation's values. The file is written next
 * to the clone's, because its paths are relative to that directory.
 */
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The database id in the clone's file until the operator enters one. */
const NO_DATABASE = '00000000-0000-0000-0000-000000000000';

interface Installation {
  name: string;
  database: { name: string; id: string };
  bucket: { name: string; jurisdiction: string | undefined };
  /** Public keys of releases, comma-separated. Undefined: the keys in the clone's file. */
  releaseKeys: string | undefined;
}

/** Returns the text of the new file. @throws Error if a line that must be replaced is not found */
export function configFor(text: string, { name, database, bucket, releaseKeys }: Installation): string {
  // The first such line has the Worker's name. Bindings have other names, which stay.
  const own = /^name = "[\w-]+"$/m.exec(text)?.[0] ?? '';
  let config = text.replaceAll(`${own}\n`, `name = "${name}"\n`);
  config = replaced(config, /^database_name = ".*"$/gm, `database_name = "${database.name}"`);
  config = replaced(config, /^database_id = ".*"$/gm, `database_id = "${database.id}"`);
  const where = bucket.jurisdiction === undefined ? '' : `\njurisdiction = "${bucket.jurisdiction}"`;
  config = replaced(config, /^bucket_name = ".*"$/gm, `bucket_name = "${bucket.name}"${where}`);
  if (releaseKeys !== undefined)
    config = replaced(config, /^RELEASE_KEYS = ".*"$/gm, `RELEASE_KEYS = "${releaseKeys}"`);
  return config;
}

function replaced(text: string, pattern: RegExp, by: string): string {
  const other = text.replace(pattern, () => by);
  if (pattern.test(text)) return other;
  throw new Error(`wrangler.toml has no line that matches /${pattern.source}/: restore the file of the clone`);
}

/** Returns the database id that the operator entered into the clone's file. Undefined: none. */
export function databaseIdIn(text: string): string | undefined {
  const id = /^database_id = "(.*)"$/m.exec(text)?.[1];
  return id === NO_DATABASE ? undefined : id;
}

/** True if the file contains release keys. */
export const releaseKeysIn = (text: string) => /^RELEASE_KEYS = ".+"$/m.test(text);

export const readWranglerConfig = (root: string) => readFile(join(root, 'wrangler.toml'), 'utf8');

/** Writes the file, calls `use` with its path, and deletes it. */
export async function withConfig<T>(root: string, text: string, use: (file: string) => Promise<T>): Promise<T> {
  const file = join(root, `wrangler.${process.pid}.deploy.toml`);
  try {
    await writeFile(file, text, { mode: 0o600 });
    return await use(file);
  } finally {
    await rm(file, { force: true });
  }
}
