/**
 * Tracks which account rows changed, in order. SQLite triggers record a change within the transaction that makes it, so
 * that no writer can forget it. There is one entry per row, which moves to the end when the row changes again. So the
 * number of entries is the number of rows, including deleted rows.
 */
import { randomBytes } from 'node:crypto';
import type { Database, SqliteRow, SqliteValue } from '../sqlite.ts';
import { REPLICATED_TABLES, type ReplicatedTable } from './replicated-tables.ts';

/** Maximum rows of an answer. */
const PAGE_ROWS = 500;

export interface ChangedRow {
  table: string;
  key: string;
  /** The row's current content; null: the row was deleted. */
  row: Record<string, string | number | null> | null;
}

interface Trigger {
  name: string;
  sql: string;
}

interface ChangesPage {
  rows: ChangedRow[];
  /** Number after which the next page begins. */
  seq: number;
  more: boolean;
}

export class ChangeFeed {
  readonly #database: Database;
  /** Identifies the feed of this file. Numbers of another feed have no meaning here. */
  readonly id: string;

  /** Writes only if something is missing, because a gateway must also start while the disk is full. */
  constructor(accounts: Database) {
    this.#database = accounts;
    const has = accounts.rows("SELECT 1 AS x FROM sqlite_master WHERE name = 'follow_feed'", []).length > 0;
    const triggers = REPLICATED_TABLES.flatMap((one) => this.#triggersOf(one));
    const known = new Map(
      accounts
        .rows("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'", [])
        .map(({ name, sql }) => [String(name), String(sql)]),
    );
    // Triggers are recreated if a migration added columns.
    const missing = triggers.filter(({ name, sql }) => known.get(name) !== sql);
    if (!has || missing.length > 0) accounts.together(() => this.#install(missing));
    const [id] = accounts.rows("SELECT value FROM follow_feed WHERE name = 'id'", []);
    this.id = String(id?.value);
  }

  #install(triggers: readonly Trigger[]): void {
    const database = this.#database;
    database.script(`CREATE TABLE IF NOT EXISTS account_changes (tbl TEXT NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL,
      PRIMARY KEY (tbl, key)) WITHOUT ROWID`);
    database.script('CREATE UNIQUE INDEX IF NOT EXISTS account_changes_seq ON account_changes (seq)');
    database.script('CREATE TABLE IF NOT EXISTS follow_feed (name TEXT PRIMARY KEY, value TEXT NOT NULL)');
    const id = randomBytes(12).toString('base64url');
    database.rows("INSERT OR IGNORE INTO follow_feed (name, value) VALUES ('id', ?), ('last', '0')", [id]);
    for (const { name, sql } of triggers) {
      database.script(`DROP TRIGGER IF EXISTS ${name}`);
      database.script(sql);
    }
    for (const one of REPLICATED_TABLES) this.#recordExistingRows(one);
  }

  #triggersOf({ table, key, quiet = [], only }: ReplicatedTable): Trigger[] {
    const columns = this.#database
      .rows(`SELECT name FROM pragma_table_info('${table}')`, [])
      .map(({ name }) => String(name));
    const news = columns.filter((column) => !quiet.includes(column)).map((column) => `"${column}"`);
    const note = (row: 'NEW' | 'OLD') => `BEGIN
        UPDATE follow_feed SET value = CAST(value AS INTEGER) + 1 WHERE name = 'last';
        INSERT INTO account_changes (tbl, key, seq)
          VALUES ('${table}', ${row}."${key}", (SELECT CAST(value AS INTEGER) FROM follow_feed WHERE name = 'last'))
          ON CONFLICT (tbl, key) DO UPDATE SET seq = excluded.seq;
      END`;
    const when = (row: 'NEW' | 'OLD') => (only === undefined ? '' : `WHEN ${only.replaceAll('ROW.', `${row}.`)}`);
    const trigger = (what: string, on: string, row: 'NEW' | 'OLD'): Trigger => {
      const name = `follow_${table}_${what}`;
      return { name, sql: `CREATE TRIGGER ${name} ${on} ${when(row)} ${note(row)}` };
    };
    return [
      trigger('insert', `AFTER INSERT ON ${table}`, 'NEW'),
      trigger('update', `AFTER UPDATE OF ${news.join(', ')} ON ${table}`, 'NEW'),
      trigger('delete', `AFTER DELETE ON ${table}`, 'OLD'),
    ];
  }

  /** Adds the rows that existed before the feed was created in this file. */
  #recordExistingRows({ table, key, only }: ReplicatedTable): void {
    const database = this.#database;
    const where = only === undefined ? '' : `${only.replaceAll('ROW.', '')} AND`;
    const missing = database.rows(
      `SELECT "${key}" AS key FROM ${table} WHERE ${where} NOT EXISTS
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

  /** Number of the last change. */
  get last(): number {
    const [row] = this.#database.rows("SELECT value FROM follow_feed WHERE name = 'last'", []);
    return Number(row?.value ?? 0);
  }

  /** Returns changes after `seq`, oldest first, each with the row's current content. */
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
    const known = REPLICATED_TABLES.find((one) => one.table === table);
    if (known === undefined) return undefined;
    const [row] = this.#database.rows(`SELECT * FROM ${table} WHERE "${known.key}" = ?`, [key]);
    return { table, key, row: row === undefined ? null : plain(row) };
  }
}

function plain(row: SqliteRow): Record<string, string | number | null> {
  const copy: Record<string, string | number | null> = {};
  for (const [name, value] of Object.entries(row)) if (!isBlob(value)) copy[name] = value;
  return copy;
}

function isBlob(value: SqliteValue): value is ArrayBuffer {
  return value instanceof ArrayBuffer;
}
