/** Copies the tables of accounts from SQLite to PostgreSQL and back, and compares both row by row. */
import { isUnstorableText } from '../../../accounts/unstorable-text.ts';
import { CommandError } from '../../../command-error.ts';
import { requireStorable } from '../postgresql/postgres-d1.ts';
import type { Connection, Value } from '../postgresql/postgres-pool.ts';
import type { Database } from '../sqlite.ts';
import { MIGRATED_TABLES, type MigratedTable } from './migrated-tables.ts';

/** Rows that are read and written together. A row of accounts has at most a few KiB. */
const ROWS_TOGETHER = 500;

/** @throws CommandError if a table has a row */
export async function requireEmptyTables(connection: Connection): Promise<void> {
  for (const { name } of MIGRATED_TABLES) {
    const [row] = (await connection.query(`SELECT EXISTS (SELECT 1 FROM "${name}")`)).rows;
    if (row?.[0] === 1)
      throw new CommandError(`The database already has data: its table ${name} is not empty. Give a new database.`);
  }
}

/** @returns the number of copied rows. @throws CommandError if PostgreSQL cannot store a row */
export async function copyTablesToPostgres(accounts: Database, connection: Connection): Promise<number> {
  let copied = 0;
  for (const table of MIGRATED_TABLES) {
    for (const rows of sqliteRows(accounts, table)) {
      try {
        for (const value of rows.flat()) requireStorable(value);
        await connection.query(insertion(table), valuesByColumn(table, rows));
      } catch (cause) {
        throw tableError(table, cause);
      }
      copied += rows.length;
    }
    await continueCountInPostgres(accounts, connection, table);
  }
  return copied;
}

function tableError({ name }: MigratedTable, cause: unknown): unknown {
  if (!isUnstorableText(cause)) return cause;
  return new CommandError(`A row of ${name} has a text with U+0000, which PostgreSQL cannot store.`, { cause });
}

/** One parameter for each column, with the values of all rows. */
function insertion({ name, columns }: MigratedTable): string {
  const names = columns.map((column) => `"${column.name}"`).join(', ');
  const given = columns.map(({ sent }, at) => `$${at + 1}::${sent}[]`).join(', ');
  return `INSERT INTO "${name}" (${names}) SELECT * FROM unnest(${given})`;
}

function valuesByColumn({ columns }: MigratedTable, rows: readonly Value[][]): unknown[] {
  return columns.map(({ sent }, at) =>
    rows.map((row) => {
      const value = row[at] ?? null;
      return sent === 'boolean' && value !== null ? value === 1 : value;
    }),
  );
}

/** The next row must not get a number that an earlier row had, even if that row was deleted. */
async function continueCountInPostgres(accounts: Database, connection: Connection, table: MigratedTable) {
  if (table.counted === undefined) return;
  const [last] = accounts.rows('SELECT seq FROM sqlite_sequence WHERE name = ?', [table.name]);
  // A sequence begins at 1, which is also its state before the first row.
  if (last === undefined || Number(last.seq) < 1) return;
  const sequence = 'SELECT setval(pg_get_serial_sequence($1, $2), $3)';
  await connection.query(sequence, [table.name, table.counted, Number(last.seq)]);
}

/** @returns the number of copied rows */
export async function copyTablesToSqlite(connection: Connection, accounts: Database): Promise<number> {
  let copied = 0;
  for (const table of MIGRATED_TABLES) {
    const { name, columns, counted } = table;
    const names = columns.map((column) => `"${column.name}"`).join(', ');
    const insert = `INSERT INTO "${name}" (${names}) VALUES (${columns.map(() => '?').join(', ')})`;
    for await (const rows of postgresRows(connection, table)) {
      accounts.together(() => {
        for (const row of rows) accounts.rows(insert, row);
      });
      copied += rows.length;
    }
    if (counted !== undefined) await continueCountInSqlite(connection, accounts, table, counted);
  }
  return copied;
}

async function continueCountInSqlite(
  connection: Connection,
  accounts: Database,
  { name }: MigratedTable,
  counted: string,
): Promise<void> {
  const query = 'SELECT pg_sequence_last_value(cast(pg_get_serial_sequence($1, $2) AS regclass))';
  const last = (await connection.query(query, [name, counted])).rows[0]?.[0] ?? null;
  if (last === null) return;
  accounts.rows('DELETE FROM sqlite_sequence WHERE name = ?', [name]);
  accounts.rows('INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)', [name, last]);
}

/** Reads both databases again. @throws CommandError that names the first table in which they differ */
export async function compareTables(accounts: Database, connection: Connection): Promise<void> {
  for (const table of MIGRATED_TABLES) {
    const here = sqliteRows(accounts, table);
    let compared = 0;
    for await (const there of postgresRows(connection, table)) {
      const { value: rows = [] } = here.next();
      const differing = there.findIndex((row, at) => JSON.stringify(row) !== JSON.stringify(rows[at]));
      if (differing !== -1 || rows.length !== there.length)
        throw difference(table, compared + (differing === -1 ? there.length : differing));
      compared += there.length;
    }
    if (here.next().done !== true) throw difference(table, compared);
  }
}

function difference({ name }: MigratedTable, row: number): CommandError {
  return new CommandError(`The copy of ${name} differs from the original in row ${row + 1}. Nothing was changed.`);
}

/** Yields at most ROWS_TOGETHER rows at a time, in the order of the primary key. */
function* sqliteRows(accounts: Database, table: MigratedTable): Generator<Value[][], undefined> {
  let rows: Value[][] = [];
  for (const row of accounts.iterate(selection(table), [])) {
    rows.push(table.columns.map(({ name }) => textOrNumber(row[name])));
    if (rows.length < ROWS_TOGETHER) continue;
    yield rows;
    rows = [];
  }
  if (rows.length > 0) yield rows;
}

function textOrNumber(value: unknown): Value {
  return typeof value === 'string' || typeof value === 'number' ? value : null;
}

async function* postgresRows(connection: Connection, table: MigratedTable): AsyncGenerator<Value[][]> {
  await connection.query(`DECLARE migrated NO SCROLL CURSOR FOR ${selection(table)}`);
  for (;;) {
    const { rows } = await connection.query(`FETCH ${ROWS_TOGETHER} FROM migrated`);
    if (rows.length === 0) break;
    yield rows;
  }
  await connection.query('CLOSE migrated');
}

function selection({ name, columns, order }: MigratedTable): string {
  const names = columns.map((column) => `"${column.name}"`).join(', ');
  return `SELECT ${names} FROM "${name}" ORDER BY ${order.map((column) => `"${column}"`).join(', ')}`;
}
