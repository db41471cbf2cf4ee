/** Which schema a data directory has: the migrations that its accounts went through. They stand for the whole directory. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { CommandError } from './command.ts';

/** Names in the order in which they were applied; none where there is no database yet. Writes nothing. */
export function appliedMigrations(d1: string): string[] {
  for (const database of openedDatabases(d1)) {
    const [table] = database.prepare("SELECT 1 FROM sqlite_master WHERE name = 'd1_migrations'").all();
    const rows = table === undefined ? [] : database.prepare('SELECT name FROM d1_migrations ORDER BY id').all();
    database.close();
    if (table !== undefined) return rows.map(({ name }) => String(name));
  }
  return [];
}

/** A setting as it is stored, parsed; undefined where it is not set. */
export function storedSetting(d1: string, name: string): unknown {
  for (const database of openedDatabases(d1)) {
    const [table] = database.prepare("SELECT 1 FROM sqlite_master WHERE name = 'settings'").all();
    const [row] = table === undefined ? [] : database.prepare('SELECT value FROM settings WHERE name = ?').all(name);
    database.close();
    if (row !== undefined) return row.value;
  }
  return undefined;
}

function* openedDatabases(d1: string): Generator<DatabaseSync> {
  const directory = join(d1, 'opentela-D1Store');
  const names = existsSync(directory) ? readdirSync(directory) : [];
  for (const name of names.filter((one) => one.endsWith('.sqlite') && one !== 'metadata.sqlite')) {
    const file = join(directory, name);
    const url = pathToFileURL(file);
    // Where nobody left a log the file alone says all; otherwise SQLite would leave one beside it.
    if (!existsSync(`${file}-wal`)) url.searchParams.set('immutable', '1');
    yield new DatabaseSync(url, { readOnly: true });
  }
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
