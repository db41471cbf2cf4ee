/** DATA/following.sqlite: followers, queued records, and the progress of the copy. */
import { join } from 'node:path';
import { storageHealth } from '../../../platform/storage/storage-health.ts';
import { Database } from '../sqlite.ts';
import { REPLICATION_FILE } from './role-file.ts';

const TABLES = `CREATE TABLE IF NOT EXISTS followers (key TEXT PRIMARY KEY, url TEXT NOT NULL, version TEXT NOT NULL, seen_at INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS taken_over (key TEXT PRIMARY KEY, position INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS hand_over (position INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS copy_state (id INTEGER PRIMARY KEY, state TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS past_hours (name TEXT PRIMARY KEY, except_of TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS budgets (subject TEXT PRIMARY KEY, seq INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS budget_origin (name TEXT PRIMARY KEY);
  CREATE TABLE IF NOT EXISTS past_budgets (subject TEXT PRIMARY KEY)`;

/**
 * Opens the file and creates what is missing. If the disk is full at the first start, the tables are in memory until
 * the next start; a gateway without followers loses nothing by this.
 */
export function openReplicationFile(data: string): Database {
  const database = new Database(join(data, REPLICATION_FILE));
  if (database.rows("SELECT 1 AS x FROM sqlite_master WHERE name = 'budget_origin'", []).length > 0) return database;
  try {
    database.script(TABLES);
    return database;
  } catch (error) {
    database.close();
    if (storageHealth.failure === undefined) throw error;
    const memory = new Database(':memory:');
    memory.script(TABLES);
    return memory;
  }
}
