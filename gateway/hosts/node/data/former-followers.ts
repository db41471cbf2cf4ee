/**
 * Gateways before layout version 5 could follow another one: `role.json` says whether a directory is that of a follower,
 * and `following.sqlite` has the records that wait for its primary. Triggers in the accounts recorded each change.
 */
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { readBoundedFile } from '../../../../node/bounded-file.ts';
import { tryParseJson } from '../../../../shared/text/parse-json.ts';
import { CommandError } from '../../../command-error.ts';
import { changeDatabase, objectFiles } from './change-database.ts';
import { ACCOUNTS_FILE } from './schema-version.ts';

const ROLE_FILE = 'role.json';
const RECORDS_FILE = 'following.sqlite';
const ROLE_MAX_BYTES = 16_384;
const roleSchema = z.object({ role: z.string(), follow: z.string().optional() });

/**
 * @throws CommandError if the directory is that of a follower. Its accounts are a copy, so it would change accounts that
 * its primary also changes.
 */
export function refuseFollower(data: string): void {
  const file = join(data, ROLE_FILE);
  if (!existsSync(file)) return;
  const { role, follow } = roleSchema.safeParse(tryParseJson(readBoundedFile(file, ROLE_MAX_BYTES))).data ?? {};
  if (role === 'first') return;
  throw new CommandError(
    `${data} is the copy of a follower of ${follow ?? 'another gateway'}, and this version has no followers. ` +
      'Nothing was changed. Several gateways share a database: docs/postgresql.md',
  );
}

/** Migrates a directory to layout version 5. */
export async function removeFollowing(data: string): Promise<void> {
  changeDatabase(join(data, ACCOUNTS_FILE), (accounts) => {
    const query = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'follow_*'";
    for (const { name } of accounts.prepare(query).all()) accounts.exec(`DROP TRIGGER "${name}"`);
    for (const table of ['account_changes', 'follow_feed', 'follow_seen'])
      accounts.exec(`DROP TABLE IF EXISTS ${table}`);
  });
  for (const file of objectFiles(data, 'LIMITS'))
    changeDatabase(file, (object) => object.exec('DROP TABLE IF EXISTS elsewhere'));
  for (const end of ['-wal', '-shm', '']) await rm(join(data, RECORDS_FILE + end), { force: true });
  await rm(join(data, ROLE_FILE), { force: true });
}
