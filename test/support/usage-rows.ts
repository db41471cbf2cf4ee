/** Usage records for tests and benches. */
import { DatabaseSync } from 'node:sqlite';
import type { UsageRow } from '../../gateway/usage/usage-row.ts';

/** The n-th record, at `at` (milliseconds since 1970). */
export function usageRow(n: number, at: number): UsageRow {
  return {
    session: 'n5qqpdx3rdv3jmbwtjrhcpu5ru',
    stream: n,
    at,
    request: `req_${n}`,
    attempt: 1,
    provider: 'eth',
    key: `key_${n % 100}`,
    user: `user_${n % 50}`,
    project: 'proj_1',
    model: n % 10 === 0 ? 'hidden' : 'stand-in',
    endpoint: 1,
    streamed: n % 2 === 0,
    status: 200,
    prompt: 100 + (n % 900),
    completion: 10 + (n % 400),
    cached: 0,
    reasoning: 0,
    firstMs: 30,
    totalMs: 1_200,
    aborted: false,
    estimated: false,
    complete: true,
    bytes: 4_000,
    traced: true,
  };
}

/**
 * Writes `count` rows into the file of an hour, as UsageObject stores them, without its sums. The file must not exist.
 */
export function fillHour(file: string, count: number, at: number): void {
  const database = new DatabaseSync(file);
  database.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
    CREATE TABLE records (n INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL,
      stream INTEGER NOT NULL, at INTEGER NOT NULL, estimated INTEGER NOT NULL, traced INTEGER NOT NULL,
      model TEXT NOT NULL, prompt INTEGER NOT NULL, completion INTEGER NOT NULL, row TEXT NOT NULL);
    CREATE UNIQUE INDEX records_name ON records (session, stream);
    CREATE INDEX records_at ON records (at);
    CREATE TABLE totals (name TEXT PRIMARY KEY, total TEXT NOT NULL);
    CREATE TABLE sending (batch INTEGER NOT NULL, total TEXT NOT NULL);
    CREATE TABLE minutes (minute INTEGER NOT NULL, model TEXT NOT NULL, input TEXT NOT NULL,
      output TEXT NOT NULL, PRIMARY KEY (minute, model)) WITHOUT ROWID; BEGIN`);
  const insert =
    database.prepare(`INSERT INTO records (session, stream, at, estimated, traced, model, prompt, completion, row)
    VALUES (?, ?, ?, 0, 1, ?, ?, ?, ?)`);
  for (let n = 1; n <= count; n++) {
    const row = usageRow(n, at + Math.floor(((n - 1) * 3_600_000) / count));
    insert.run(row.session, row.stream, row.at, row.model, row.prompt, row.completion, JSON.stringify(row));
  }
  database.exec('COMMIT');
  database.close();
}
