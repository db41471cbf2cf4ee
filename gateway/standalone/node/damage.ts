/** Databases that cannot be read: told with the file's name and what helps, before anything else is tried on them. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { CommandError } from './command.ts';

/** Without them no request is answered. A node's own database concerns that node's session alone, and there may be thousands. */
const NEEDED = ['d1/opentela-D1Store', 'objects/opentela-RegistryObject'];

/** The first bytes and the schema are read: what a start costs on a large database. @throws CommandError */
export function refuseUnreadable(data: string): void {
  for (const file of databases(data)) check(file, 'SELECT count(*) AS found FROM sqlite_master', () => true);
}

/** Every page is read. For a start that failed: some seconds then tell more than its error. @throws CommandError */
export function refuseDamaged(data: string): void {
  for (const file of databases(data)) check(file, 'PRAGMA quick_check(1)', (said) => said === 'ok');
}

function databases(data: string): string[] {
  return NEEDED.flatMap((part) => {
    const directory = join(data, part);
    const names = existsSync(directory) ? readdirSync(directory) : [];
    return names.filter((name) => name.endsWith('.sqlite')).map((name) => join(directory, name));
  });
}

function check(file: string, query: string, isGood: (said: unknown) => boolean): void {
  const url = pathToFileURL(file);
  // Where nobody left a log the file alone says all; otherwise SQLite would leave one beside it.
  if (!existsSync(`${file}-wal`)) url.searchParams.set('immutable', '1');
  let said: unknown;
  try {
    const database = new DatabaseSync(url, { readOnly: true });
    try {
      [said] = Object.values(database.prepare(query).get() ?? {});
    } finally {
      database.close();
    }
  } catch (cause) {
    throw damaged(file, cause instanceof Error ? cause.message : String(cause), cause);
  }
  if (!isGood(said)) throw damaged(file, String(said));
}

function damaged(file: string, reason: string, cause?: unknown): CommandError {
  return new CommandError(
    `${file} is damaged: ${reason}. Nothing was changed. Move the data directory away and put a backup in its place: ` +
      'otela-gateway restore --data DIR FILE',
    { cause },
  );
}
