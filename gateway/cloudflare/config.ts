/**
 * wrangler.toml for one installation: the clone's file, with the installation's values. Written next to it, because its
 * paths are relative to that directory.
 */
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The id in the clone's file until the operator enters one. */
const NO_DATABASE = '00000000-0000-0000-0000-000000000000';

interface Installation {
  /** Name of the Worker. */
  name: string;
  database: { name: string; id: string };
  bucket: { name: string; jurisdiction: string | undefined };
  /** Public keys, comma-separated. Undefined: as in the clone's file. */
  releaseKeys: string | undefined;
}

/** The text of the new file. A line that does not match is an error, not a guess. */
export function configFor(text: string, { name, database, bucket, releaseKeys }: Installation): string {
  // Bindings have names too: only the Worker's name is replaced.
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
  throw new Error(`wrangler.toml has no line like ${pattern.source}`);
}

/** The id that the operator entered into the clone's file. Undefined: none. */
export function databaseIdIn(text: string): string | undefined {
  const id = /^database_id = "(.*)"$/m.exec(text)?.[1];
  return id === NO_DATABASE ? undefined : id;
}

/** True if the file names keys of releases. */
export const releaseKeysIn = (text: string) => /^RELEASE_KEYS = ".+"$/m.test(text);

export const readWranglerConfig = (root: string) => readFile(join(root, 'wrangler.toml'), 'utf8');

/** Writes the file, calls `use` with its path, and deletes it again. */
export async function withConfig<T>(root: string, text: string, use: (file: string) => Promise<T>): Promise<T> {
  const file = join(root, `wrangler.${process.pid}.deploy.toml`);
  try {
    await writeFile(file, text, { mode: 0o600 });
    return await use(file);
  } finally {
    await rm(file, { force: true });
  }
}
