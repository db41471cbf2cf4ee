/**
 * Which rows of accounts changed, in order: triggers of SQLite write it down in the transaction of the change itself, so that no writer can
 * forget to. One line per row, moved to the end when the row changes again: as many lines as there are rows, deleted ones included.
 */
import { randomBytes } from 'node:crypto';
import type { Database, Row, Value } from '../sqlite.ts';
import { REPLICATED } from './replicated.ts';

/** Rows of one answer. */
export const PAGE_ROWS = 500;

export interface ChangedRow {
  table: string;
  key: string;
  /** Null: it is gone. */
  row: Record<string, string | number | null> | null;
}

export interface ChangesPage {
  rows: ChangedRow[];
  /** To ask from next. */
  seq: number;
  more: boolean;
}

export class ChangeFeed {
  readonly #database: Database;
  /** Of this file: numbers of another feed mean nothing here. */
  readonly id: string;

  constructor(accounts: Database) {
    this.#database = accounts;
    accounts.together(() => this.#install());
    const [known] = accounts.rows("SELECT value FROM follow_feed WHERE name = 'id'", []);
    this.id = String(known?.value);
  }

  #install(): void {
    const database = this.#database;
    database.script(`CREATE TABLE IF NOT EXISTS account_changes (tbl TEXT NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL,
      PRIMARY KEY (tbl, key)) WITHOUT ROWID`);
    database.script('CREATE UNIQUE INDEX IF NOT EXISTS account_changes_seq ON account_changes (seq)');
    database.script('CREATE TABLE IF NOT EXISTS follow_feed (name TEXT PRIMARY KEY, value TEXT NOT NULL)');
    database.rows("INSERT OR IGNORE INTO follow_feed (name, value) VALUES ('id', ?)", [
      randomBytes(12).toString('base64url'),
    ]);
    database.rows("INSERT OR IGNORE INTO follow_feed (name, value) VALUES ('last', '0')", []);
    for (const { table, key, quiet = [], only } of REPLICATED) this.#watch(table, key, quiet, only);
  }

  /** Triggers are made anew at each start: a migration may have added columns. */
  #watch(table: string, key: string, quiet: readonly string[], only: string | undefined): void {
    const database = this.#database;
    const columns = database.rows(`SELECT name FROM pragma_table_info('${table}')`, []).map(({ name }) => String(name));
    const news = columns.filter((column) => !quiet.includes(column)).map((column) => `"${column}"`);
    const note = (row: 'NEW' | 'OLD') => `BEGIN
        UPDATE follow_feed SET value = CAST(value AS INTEGER) + 1 WHERE name = 'last';
        INSERT INTO account_changes (tbl, key, seq)
          VALUES ('${table}', ${row}."${key}", (SELECT CAST(value AS INTEGER) FROM follow_feed WHERE name = 'last'))
          ON CONFLICT (tbl, key) DO UPDATE SET seq = excluded.seq;
      END`;
    const when = (row: 'NEW' | 'OLD') => (only === undefined ? '' : `WHEN ${only.replaceAll('ROW.', `${row}.`)}`);
    for (const [name, on, row] of [
      ['insert', `AFTER INSERT ON ${table}`, 'NEW'],
      ['update', `AFTER UPDATE OF ${news.join(', ')} ON ${table}`, 'NEW'],
      ['delete', `AFTER DELETE ON ${table}`, 'OLD'],
    ] as const) {
      database.script(`DROP TRIGGER IF EXISTS follow_${table}_${name}`);
      database.script(`CREATE TRIGGER follow_${table}_${name} ${on} ${when(row)} ${note(row)}`);
    }
    // What was there before the first start that watches.
    const where = only === undefined ? '' : `WHERE ${only.replaceAll('ROW.', '')}`;
    const missing = database.rows(
      `SELECT "${key}" AS key FROM ${table} ${where} ${where === '' ? 'WHERE' : 'AND'} NOT EXISTS
         (SELECT 1 FROM account_changes WHERE tbl = ? AND account_changes.key = ${table}."${key}") ORDER BY "${key}"`,
      [table],
    );
    for (const { key: one } of missing) {
      database.rows("UPDATE follow_feed SET value = CAST(value AS INTEGER) + 1 WHERE name = 'last'", []);
      database.rows(
        `INSERT INTO account_changes (tbl, key, seq)
         VALUES (?, ?, (SELECT CAST(value AS INTEGER) FROM follow_feed WHERE name = 'last'))`,
        [table, one],
      );
    }
  }

  /** The number of the last change. */
  get last(): number {
    const [row] = this.#database.rows("SELECT value FROM follow_feed WHERE name = 'last'", []);
    return Number(row?.value ?? 0);
  }

  /** What changed after `seq`, oldest first, each row as it is now. */
  since(seq: number): ChangesPage {
    const lines = this.#database.rows('SELECT tbl, key, seq FROM account_changes WHERE seq > ? ORDER BY seq LIMIT ?', [
      seq,
      PAGE_ROWS + 1,
    ]);
    const page = lines.slice(0, PAGE_ROWS);
    const rows = page.flatMap(({ tbl, key }) => this.#row(String(tbl), String(key)) ?? []);
    return { rows, seq: Number(page.at(-1)?.seq ?? seq), more: lines.length > PAGE_ROWS };
  }

  #row(table: string, key: string): ChangedRow | undefined {
    const known = REPLICATED.find((one) => one.table === table);
    if (known === undefined) return undefined;
    const [row] = this.#database.rows(`SELECT * FROM ${table} WHERE "${known.key}" = ?`, [key]);
    return { table, key, row: row === undefined ? null : plain(row) };
  }
}

function plain(row: Row): Record<string, string | number | null> {
  const copy: Record<string, string | number | null> = {};
  for (const [name, value] of Object.entries(row)) if (!isBlob(value)) copy[name] = value;
  return copy;
}

function isBlob(value: Value): value is ArrayBuffer {
  return value instanceof ArrayBuffer;
}
