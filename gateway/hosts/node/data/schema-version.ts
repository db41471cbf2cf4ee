/** Reads which migrations were applied to the accounts of a data directory. */
import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { CommandError } from '../../../command-error.ts';

/** Path relative to the data directory. */
export const ACCOUNTS_FILE = 'accounts.sqlite';

/**
 * Returns the names of the applied migrations, in the order of application; empty if the file does not exist yet.
 * Writes nothing.
 */
export function appliedMigrations(accounts: string): string[] {
  const rows = read(accounts, 'd1_migrations', 'SELECT name FROM d1_migrations ORDER BY id');
  return rows.map(({ name }) => String(name));
}

/** Reads a stored setting; undefined if it is not set. */
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

/** Opens a database so that nothing is written, not even a log beside it. */
export function openToRead(file: string): DatabaseSync {
  const url = pathToFileURL(file);
  // A file without a write-ahead log contains all data, so it is opened as immutable. Otherwise SQLite would leave a
  // log beside it.
  if (!existsSync(`${file}-wal`)) url.searchParams.set('immutable', '1');
  return new DatabaseSync(url, { readOnly: true });
}

/** Returns the migrations in `applied` that this program does not know, which a newer program applied. */
export function unknownMigrations(known: readonly string[], applied: readonly string[]): string[] {
  return applied.filter((name) => !known.includes(name));
}

/**
 * @throws CommandError if a newer program wrote the data: this program does not know its structure and could damage it
 */
export function refuseNewerSchema(what: string, known: readonly string[], applied: readonly string[]): void {
  const newer = unknownMigrations(known, applied);
  if (newer.length === 0) return;
  throw new CommandError(
    `${what} was written by a newer otela-gateway: this version does not know ${newer.join(', ')}. ` +
      'Run that version or a later one, or restore a backup from before the upgrade. Nothing was changed.',
  );
}
