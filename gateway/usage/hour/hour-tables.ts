/** The tables of an hour's object. */
import type { Sql } from '../../platform/object-context.ts';
import { MinuteHistograms } from './minute-histograms.ts';

/**
 * SQL for the owner of a record: its user, or its key if the key belongs to no user. The index `records_owner` has it,
 * so a query must use exactly this text. Hours of an older version have no such index; their records are all read.
 */
export const RECORD_OWNER = `coalesce(nullif(json_extract(row, '$.user'), ''), json_extract(row, '$.key'))`;

export function createHourTables(sql: Sql): void {
  sql.exec(`CREATE TABLE records (n INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL,
      stream INTEGER NOT NULL, at INTEGER NOT NULL, estimated INTEGER NOT NULL, traced INTEGER NOT NULL,
      model TEXT NOT NULL, prompt INTEGER NOT NULL, completion INTEGER NOT NULL, row TEXT NOT NULL);
    CREATE UNIQUE INDEX records_name ON records (session, stream);
    CREATE INDEX records_at ON records (at);
    CREATE INDEX records_owner ON records (${RECORD_OWNER}, at);
    CREATE TABLE totals (name TEXT PRIMARY KEY, total TEXT NOT NULL);
    CREATE TABLE sending (batch INTEGER NOT NULL, total TEXT NOT NULL)`);
  new MinuteHistograms(sql).create();
}
