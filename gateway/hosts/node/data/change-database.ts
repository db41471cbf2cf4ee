/** Changes of databases in a data directory that no gateway uses. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** Runs `work` with the database. Does nothing if there is none. */
export function changeDatabase(file: string, work: (database: DatabaseSync) => void): void {
  if (!existsSync(file)) return;
  const database = new DatabaseSync(file);
  try {
    work(database);
  } finally {
    database.close();
  }
}

/** Files of all objects of a class. */
export function objectFiles(data: string, className: string): string[] {
  const directory = join(data, 'objects', className);
  const names = existsSync(directory) ? readdirSync(directory) : [];
  return names.filter((name) => name.endsWith('.sqlite')).map((name) => join(directory, name));
}
