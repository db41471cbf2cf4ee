/** The tables of an hour's object. */
import type { Sql } from '../../platform/object-context.ts';
import { MinuteHistograms } from './minute-histograms.ts';

export function createHourTables(sql: Sql): void {
  sql.exec(`CREATE TABLE records (n INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL,
      stream INTEGER NOT NULL, at INTEGER NOT NULL, estimated INTEGER NOT NULL, traced INTEGER NOT NULL,
      model TEXT NOT NULL, prompt INTEGER NOT NULL, completion INTEGER NOT NULL, row TEXT NOT NULL);
    CREATE UNIQUE INDEX records_name ON records (session, stream);
    CREATE INDEX records_at ON records (at);
    CREATE TABLE totals (name TEXT PRIMARY KEY, total TEXT NOT NULL);
    CREATE TABLE sending (batch INTEGER NOT NULL, total TEXT NOT NULL)`);
  new MinuteHistograms(sql).create();
}
