/** Reads the usage records of one hour from an object's file or from PostgreSQL, and compares both. */
import { createHash } from 'node:crypto';
import { CommandError } from '../../../command-error.ts';
import { HourRecordsReader } from '../../../usage/hour/hour-records-reader.ts';
import type { UsageRow } from '../../../usage/usage-row.ts';
import { ReadSql } from '../object-storage.ts';
import type { Connection, Value } from '../postgresql/postgres-pool.ts';
import { RECORD_COLUMNS, recordValues, storableRow } from '../postgresql/usage/record-columns.ts';
import { rowOf } from '../postgresql/usage/usage-reader.ts';
import type { Database } from '../sqlite.ts';

/** Rows that are read and written together: about one MiB. An hour may have a million. */
const ROWS_TOGETHER = 1_000;
const ALL_NAMES = Object.keys(RECORD_COLUMNS);
/** Columns that reports read. `name` and `hour` depend on the place of a row, and `row` is compared by its members. */
export const REPORTED_COLUMNS: readonly string[] = ALL_NAMES.filter((name) => !['name', 'hour', 'row'].includes(name));

interface StoredRecord {
  row: UsageRow;
  /** Values of the requested columns. */
  values: Value[];
}

/** Yields the records of an hour in insertion order. */
export function* recordsInFile(hour: Database, columns: readonly string[] = []): Generator<StoredRecord[]> {
  const reader = new HourRecordsReader(new ReadSql(hour));
  for (let after = 0; ; ) {
    const page = reader.page(after, ROWS_TOGETHER, false);
    const last = page.at(-1);
    if (last === undefined) return;
    yield page.map((one) => {
      const row = storableRow(one.row);
      return { row, values: columns.length === 0 ? [] : columnsOf(row, columns) };
    });
    after = last.n;
  }
}

function columnsOf(row: UsageRow, columns: readonly string[]): Value[] {
  const values = recordValues(row);
  return columns.map((name) => {
    const value = values[ALL_NAMES.indexOf(name)] ?? null;
    if (typeof value === 'boolean') return Number(value);
    return typeof value === 'string' ? value.toWellFormed() : value;
  });
}

/** Yields the records of an hour in insertion order. */
export async function* recordsInPostgres(
  connection: Connection,
  hour: string,
  columns: readonly string[] = [],
): AsyncGenerator<StoredRecord[]> {
  const names = ['n', 'row', 'buckets', ...columns].map((name) => `"${name}"`).join(', ');
  const query = `SELECT ${names} FROM usage_records WHERE hour = $1 AND n > $2 ORDER BY n LIMIT ${ROWS_TOGETHER}`;
  for (let after: Value = 0; ; ) {
    const { rows } = await connection.query(query, [hour, after]);
    const last = rows.at(-1);
    if (last === undefined) return;
    yield rows.map(([_n, row, buckets, ...values]) => ({ row: rowOf([row, buckets]), values }));
    after = last[0] ?? null;
  }
}

/** Count and digest of records in their order. */
class RecordsDigest {
  #count = 0;
  readonly #hash = createHash('sha256');

  add(records: readonly StoredRecord[]): void {
    this.#count += records.length;
    for (const { row, values } of records) this.#hash.update(`${JSON.stringify([row, ...values])}\n`);
  }

  text(): string {
    return `${this.#count} ${this.#hash.digest('hex')}`;
  }
}

/** Reads both sides again. @throws CommandError if they differ in a row or in one of `columns` */
export async function compareHour(
  hour: string,
  file: Database,
  connection: Connection,
  columns: readonly string[] = [],
): Promise<void> {
  const [here, there] = [new RecordsDigest(), new RecordsDigest()];
  for (const records of recordsInFile(file, columns)) here.add(records);
  for await (const records of recordsInPostgres(connection, hour, columns)) there.add(records);
  if (here.text() !== there.text())
    throw new CommandError(`The copy of the usage records of ${hour} differs from the original. Nothing was changed.`);
}
