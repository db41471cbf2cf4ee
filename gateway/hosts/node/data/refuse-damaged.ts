/** Detects unreadable databases, and names the command that helps, before a start changes anything. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { errorText } from '../../../../shared/text/error-text.ts';
import { CommandError } from '../../../command-error.ts';
import { isDamage } from '../sqlite.ts';
import { ACCOUNTS_FILE, openToRead } from './schema-version.ts';

/**
 * Databases without which no request can be answered. Each of the other files belongs to one node, model or hour, and
 * there may be thousands.
 */
const NEEDED = [ACCOUNTS_FILE, 'objects/alarms.sqlite', 'objects/REGISTRY'];
/** NEEDED in a data directory of version 0.1, which ran on workerd. */
const NEEDED_ON_WORKERD = ['d1/opentela-D1Store', 'objects/opentela-RegistryObject'];

/**
 * Reads the first bytes and the schema of each database, which is cheap enough for every start.
 * @throws CommandError
 */
export function refuseUnreadableFile(data: string): void {
  for (const file of databases(data)) check(file, 'SELECT count(*) AS found FROM sqlite_master', () => true);
}

/** Reads every page of each database. Called after a failed start, because it takes seconds. @throws CommandError */
export function refuseDamaged(data: string): void {
  for (const file of databases(data)) check(file, 'PRAGMA quick_check(1)', (result) => result === 'ok');
}

function databases(data: string): string[] {
  return [...NEEDED, ...NEEDED_ON_WORKERD].flatMap((part) => {
    const path = join(data, part);
    if (part.endsWith('.sqlite')) return existsSync(path) ? [path] : [];
    const names = existsSync(path) ? readdirSync(path) : [];
    return names.filter((name) => name.endsWith('.sqlite')).map((name) => join(path, name));
  });
}

function check(file: string, query: string, isGood: (result: unknown) => boolean): void {
  let result: unknown;
  try {
    const database = openToRead(file);
    try {
      [result] = Object.values(database.prepare(query).get() ?? {});
    } finally {
      database.close();
    }
  } catch (cause) {
    const reason = errorText(cause);
    if (isDamage(cause)) throw damaged(file, reason, cause);
    throw new CommandError(`${file} cannot be read: ${reason}. Nothing was changed.`, { cause });
  }
  if (!isGood(result)) throw damaged(file, String(result));
}

function damaged(file: string, reason: string, cause?: unknown): CommandError {
  return new CommandError(
    `${file} is damaged: ${reason}. Nothing was changed. Move the data directory away and restore a backup: ` +
      'otela-gateway restore --data DIR FILE',
    { cause },
  );
}
