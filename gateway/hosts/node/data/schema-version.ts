/** Which schema the accounts of a data directory have: the migrations that they went through. */
import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { CommandError } from '../../../command.ts';

/** In the data directory. */
export const ACCOUNTS_FILE = 'accounts.sqlite';

/** Names in the order in which they were applied; none where there is no such file yet. Writes nothing. */
export function appliedMigrations(accounts: string): string[] {
  const rows = read(accounts, 'd1_migrations', 'SELECT name FROM d1_migrations ORDER BY id');
  return rows.map(({ name }) => String(name));
}

/** A setting as it is stored, parsed; undefined where it is not set. */
export function storedSetting(accounts: string, name: string): unknown {
  const [row] = read(accounts, 'settings', 'SELECT value FROM settings WHERE name = ?', name);
  return row?.value;
}

function read(file: string, table: string, query: string, ...bindings: string[]) {
  if (!existsSync(file)) return [];
  const database = openToRead(file);
  try {
    const [found] = database.prepare('SELECT 1 FROM sqlite_master WHERE name = ?').all(table);
    return found === undefined ? [] : database.prepare(query).all(...bindings);
  } finally {
    database.close();
  }
}

/** Opened so that nothing is written, beside it neither. */
export function openToRead(file: string): DatabaseSync {
  const url = pathToFileURL(file);
  // Without a log beside it the file alone has everything; opened in any other way, SQLite would leave a log there.
  if (!existsSync(`${file}-wal`)) url.searchParams.set('immutable', '1');
  return new DatabaseSync(url, { readOnly: true });
}

/** Of `applied`, what this program does not know: a newer one made it. */
export function newerThan(known: readonly string[], applied: readonly string[]): string[] {
  return applied.filter((name) => !known.includes(name));
}

/** @throws CommandError where a newer program made it: this one does not know what stands where, and would damage it */
export function refuseNewer(what: string, known: readonly string[], applied: readonly string[]): void {
  const newer = newerThan(known, applied);
  if (newer.length === 0) return;
  throw new CommandError(
    `${what} is of a newer otela-gateway: this one does not know ${newer.join(', ')}. ` +
      'Run that version or a later one, or restore a backup from before the upgrade. Nothing was changed.',
  );
}
