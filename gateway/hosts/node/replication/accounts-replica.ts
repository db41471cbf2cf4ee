/** A follower's copy of the primary's accounts. Rows are written unchanged, one page per transaction. */
import type { Database, SqliteValue } from '../sqlite.ts';
import type { ChangedRow } from './change-feed.ts';
import { REPLICATED_TABLES, type ReplicatedTable } from './replicated-tables.ts';

export class AccountsReplica {
  readonly #database: Database;
  readonly #columns = new Map<string, ReadonlySet<string>>();
  /** The columns of each unique index, by table. Primary keys are not included. */
  readonly #unique = new Map<string, readonly (readonly string[])[]>();

  constructor(accounts: Database) {
    this.#database = accounts;
    for (const { table } of REPLICATED_TABLES) {
      const rows = accounts.rows(`SELECT name FROM pragma_table_info('${table}')`, []);
      this.#columns.set(table, new Set(rows.map(({ name }) => String(name))));
      this.#unique.set(table, uniqueOf(accounts, table));
    }
  }

  /** Begins a complete copy. Rows that do not arrive before `complete` no longer exist at the primary. */
  begin(): void {
    this.#database.script(
      'CREATE TABLE IF NOT EXISTS follow_seen (tbl TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (tbl, key)) WITHOUT ROWID',
    );
    this.#database.rows('DELETE FROM follow_seen', []);
  }

  /** Writes rows. @returns how many rows changed */
  apply(rows: readonly ChangedRow[], whole: boolean): number {
    return this.#database.together(() => {
      const before = this.#database.counters().total;
      for (const one of rows) this.#write(one);
      const changed = this.#database.counters().total - before;
      if (whole)
        for (const { table, key } of rows)
          this.#database.rows('INSERT OR IGNORE INTO follow_seen (tbl, key) VALUES (?, ?)', [table, key]);
      return changed;
    });
  }

  /** Ends a complete copy: deletes the rows that did not arrive. */
  complete(): void {
    this.#database.together(() => {
      for (const { table, key, only } of REPLICATED_TABLES) {
        const at_home = only === undefined ? '' : `AND ${only.replaceAll('ROW.', '')}`;
        this.#database.rows(
          `DELETE FROM ${table} WHERE NOT EXISTS
             (SELECT 1 FROM follow_seen WHERE tbl = ? AND follow_seen.key = CAST(${table}."${key}" AS TEXT)) ${at_home}`,
          [table],
        );
      }
      this.#database.rows('DELETE FROM follow_seen', []);
    });
  }

  #write({ table, key, row }: ChangedRow): void {
    const known = REPLICATED_TABLES.find((one) => one.table === table);
    const columns = this.#columns.get(table);
    // The table or column is from a newer primary, and this version ignores it.
    if (known === undefined || columns === undefined) return;
    if (row === null) {
      this.#database.rows(`DELETE FROM ${table} WHERE "${known.key}" = ?`, [key]);
      return;
    }
    this.#makeRoom(known, key, row);
    const names = Object.keys(row).filter((name) => columns.has(name));
    const quiet = known.quiet ?? [];
    const updates = names.filter((name) => name !== known.key && !quiet.includes(name));
    const values: SqliteValue[] = names.map((name) => row[name] ?? null);
    const list = names.map((name) => `"${name}"`).join(', ');
    const sets = updates.map((name) => `"${name}" = excluded."${name}"`).join(', ');
    this.#database.rows(
      `INSERT INTO ${table} (${list}) VALUES (${names.map(() => '?').join(', ')})
       ON CONFLICT ("${known.key}") DO UPDATE SET ${sets}`,
      values,
    );
  }

  /**
   * Deletes other rows that hold a unique value of this row. At the primary, those rows no longer hold the value. Their
   * changes arrive later, because rows arrive in the order of their last change.
   */
  #makeRoom({ table, key: column }: ReplicatedTable, key: string, row: ChangedRow['row']): void {
    for (const names of this.#unique.get(table) ?? []) {
      const same = names.map((name) => `"${name}" = ?`).join(' AND ');
      const values: SqliteValue[] = names.map((name) => row?.[name] ?? null);
      this.#database.rows(`DELETE FROM ${table} WHERE ${same} AND "${column}" <> ?`, [...values, key]);
    }
  }
}

function uniqueOf(accounts: Database, table: string): string[][] {
  const indexes = accounts.rows(
    `SELECT name FROM pragma_index_list('${table}') WHERE "unique" = 1 AND origin <> 'pk'`,
    [],
  );
  return indexes.map(({ name }) =>
    accounts.rows('SELECT name FROM pragma_index_info(?)', [String(name)]).map((one) => String(one.name)),
  );
}
