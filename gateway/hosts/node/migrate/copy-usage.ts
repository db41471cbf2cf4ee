/** Copies the usage records of single requests from the hours' objects to rows in PostgreSQL, and back. */
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { CommandError } from '../../../command-error.ts';
import { createHourTables } from '../../../usage/hour/hour-tables.ts';
import { MinuteHistograms } from '../../../usage/hour/minute-histograms.ts';
import { storeRows } from '../../../usage/hour/store-rows.ts';
import { RETENTION_CHECK_MS } from '../../../usage/hour/usage-hour-object.ts';
import type { UsageRow } from '../../../usage/usage-row.ts';
import { addTotal, readTotal, totalKey, type UsageTotal } from '../../../usage/usage-totals.ts';
import { fileName, objectName } from '../object-file-name.ts';
import { NodeStorage } from '../object-storage.ts';
import { OutputGate } from '../output-gate.ts';
import type { Connection } from '../postgresql/postgres-pool.ts';
import { addTotals } from '../postgresql/usage/add-totals.ts';
import { RECORD_COLUMNS, recordName, recordValues } from '../postgresql/usage/record-columns.ts';
import { Database } from '../sqlite.ts';
import { compareHour, REPORTED_COLUMNS, recordsInFile, recordsInPostgres } from './usage-digest.ts';

/** Class of the hours' objects. */
export const USAGE_CLASS = 'USAGE';
/** Names that `usageShardOf` returns. */
const HOUR_NAME = /^[+-]?\d{4,6}-\d\d-\d\d(?:T\d\d)?$/;

const COLUMNS = Object.keys(RECORD_COLUMNS);
const NAMES = COLUMNS.map((name) => `"${name}"`).join(', ');
const LISTS = Object.values(RECORD_COLUMNS).map((type, at) => `$${at + 1}::${type}[]`);
/** Numbers of rows count up in their order. */
const INSERT = `INSERT INTO usage_records (${NAMES})
  SELECT ${NAMES} FROM unnest(${LISTS.join(', ')}) WITH ORDINALITY AS given (${NAMES}, position) ORDER BY position`;

/**
 * The totals of the records are in the table of totals, except those that still wait in an hour's object.
 * @returns the number of copied records. @throws CommandError if a copy differs
 */
export async function copyUsageToPostgres(objects: string, connection: Connection): Promise<number> {
  let copied = 0;
  for (const { hour, path } of hourFiles(objects)) {
    const file = new Database(path, { readOnly: true });
    try {
      if (!hasTable(file, 'records')) continue;
      for (const records of recordsInFile(file)) {
        await insert(connection, hour, records);
        copied += records.length;
      }
      await compareHour(hour, file, connection, REPORTED_COLUMNS);
      await addTotals(connection, await waitingTotals(hour, file, connection));
    } finally {
      file.close();
    }
  }
  return copied;
}

/** @throws CommandError if a file does not have the name of an hour */
function hourFiles(objects: string): { hour: string; path: string }[] {
  const directory = join(objects, USAGE_CLASS);
  if (!existsSync(directory)) return [];
  const names = readdirSync(directory).filter((name) => name.endsWith('.sqlite'));
  return names.sort().map((name) => {
    const [hour, path] = [objectName(name), join(directory, name)];
    if (hour === undefined || !HOUR_NAME.test(hour))
      throw new CommandError(`${path} does not have the name of an hour.`);
    return { hour, path };
  });
}

function hasTable(file: Database, table: string): boolean {
  return file.rows('SELECT 1 FROM sqlite_master WHERE name = ?', [table]).length > 0;
}

async function insert(connection: Connection, hour: string, records: readonly { row: UsageRow }[]): Promise<void> {
  const names = await namesOf(connection, hour, records);
  const values = records.map(({ row }) => recordValues(row));
  const lists = COLUMNS.map((column, at) => {
    if (column === 'name') return names;
    return values.map((value) => (column === 'hour' ? hour : (value[at] ?? null)));
  });
  await connection.query(INSERT, lists);
}

/**
 * In a directory, two hours may have records of one attempt: an estimate, and the exact record that arrived later. The
 * totals contain both, so both are kept. A name can only be used once, so the second gets another.
 */
async function namesOf(
  connection: Connection,
  hour: string,
  records: readonly { row: UsageRow }[],
): Promise<readonly string[]> {
  const names = records.map(({ row }) => recordName(row).toWellFormed());
  const { rows } = await connection.query('SELECT name FROM usage_records WHERE name = ANY($1::text[])', [names]);
  const used = new Set(rows.map(([name]) => String(name)));
  return records.map(({ row }, at) => {
    const name = names[at] ?? '';
    if (used.has(name)) return `${row.session} ${row.stream} ${hour}`;
    used.add(name);
    return name;
  });
}

/** Returns totals that the table of totals does not contain yet. A batch may be in both if the gateway was killed. */
async function waitingTotals(hour: string, file: Database, connection: Connection): Promise<Map<string, UsageTotal>> {
  const [sent] = file.rows('SELECT max(batch) AS batch FROM sending', []);
  const query = 'SELECT 1 FROM usage_batches WHERE shard = $1 AND batch = $2';
  const isAdded = (await connection.query(query, [hour, sent?.batch ?? null])).rows.length > 0;
  const rows = [...file.rows('SELECT total FROM totals', [])];
  if (!isAdded) rows.push(...file.rows('SELECT total FROM sending', []));
  const totals = new Map<string, UsageTotal>();
  for (const { total: text } of rows) {
    const total = readTotal(String(text));
    const known = totals.get(totalKey(total));
    if (known === undefined) totals.set(totalKey(total), total);
    else addTotal(known, total);
  }
  return totals;
}

/**
 * Writes an object for each hour with records.
 * @returns the number of copied records of each hour. @throws CommandError if a copy differs
 */
export async function copyUsageToDirectory(connection: Connection, objects: string): Promise<Map<string, number>> {
  const query = 'SELECT hour, count(*) FROM usage_records GROUP BY hour ORDER BY hour';
  const hours = new Map((await connection.query(query)).rows.map(([hour, count]) => [String(hour), Number(count)]));
  const directory = join(objects, USAGE_CLASS);
  if (hours.size > 0) mkdirSync(directory, { recursive: true, mode: 0o700 });
  for (const hour of hours.keys()) {
    const file = new Database(join(directory, fileName(hour)));
    try {
      await writeHour(connection, hour, file);
      await compareHour(hour, file, connection);
    } finally {
      file.close();
    }
  }
  return hours;
}

/** As gateway/usage/hour/usage-hour-object.ts stores records, without their totals. */
async function writeHour(connection: Connection, hour: string, file: Database): Promise<void> {
  const gate = new OutputGate(file, (error) => {
    throw error;
  });
  const { sql } = new NodeStorage(file, gate, { get: () => null, set: () => {}, delete: () => {} });
  createHourTables(sql);
  gate.commit();
  const minutes = new MinuteHistograms(sql);
  for await (const records of recordsInPostgres(connection, hour)) {
    const rows = records.map(({ row }) => row);
    minutes.count(storeRows(sql, rows, () => {}));
    gate.commit();
  }
}

/**
 * Alarms by which the hours' objects delete their records after the retention. They are spread over the time in which
 * each object checks its retention once, so that not all objects do so at the start.
 */
export function retentionAlarms(hours: Iterable<string>, now: number): Map<string, number> {
  const names = [...hours];
  const spread = (at: number) => now + Math.round(((at + 1) / names.length) * RETENTION_CHECK_MS);
  return new Map(names.map((hour, at) => [`${USAGE_CLASS}/${hour}`, spread(at)]));
}
