/** Stores usage rows in the hour's object. */
import type { Sql } from '../../platform/object-context.ts';
import { execEach } from '../../platform/storage/exec-each.ts';
import type { UsageRow } from '../usage-row.ts';
import type { RowChange } from './minute-histograms.ts';

/** Rows that are looked up and stored together: half a MiB. */
const ROWS_PER_STATEMENT = 500;

/**
 * Stores the rows that are not stored yet; an exact row replaces an estimate. `onNew` is called for each stored row
 * that does not replace an estimate.
 * @returns which rows were added and removed
 */
export function storeRows(sql: Sql, rows: readonly UsageRow[], onNew: (row: UsageRow) => void): RowChange[] {
  const changes: RowChange[] = [];
  for (let from = 0; from < rows.length; from += ROWS_PER_STATEMENT) {
    changes.push(...storeTogether(sql, rows.slice(from, from + ROWS_PER_STATEMENT), onNew));
  }
  return changes;
}

function storeTogether(sql: Sql, rows: readonly UsageRow[], onNew: (row: UsageRow) => void): RowChange[] {
  const changes: RowChange[] = [];
  const known = storedRows(sql, rows);
  const written = new Map<string, UsageRow>();
  for (const row of rows) {
    const before = namesOf(row).flatMap((name) => known.get(name) ?? []);
    if (before.some((one) => !one.estimated) || (before.length > 0 && row.estimated)) continue;
    for (const one of before) {
      known.delete(nameOf(one));
      if (written.delete(nameOf(one))) continue;
      sql.exec('DELETE FROM records WHERE session = ? AND stream = ?', one.session, one.stream);
    }
    known.set(nameOf(row), row);
    written.set(nameOf(row), row);
    if (before.length === 0) onNew(row);
    for (const one of before) changes.push({ row: one, sign: -1 });
    changes.push({ row, sign: 1 });
  }
  if (written.size === 0) return changes;
  execEach(
    sql,
    `INSERT INTO records (session, stream, at, estimated, traced, model, prompt, completion, row)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    [...written.values()].map((row) => [
      row.session,
      row.stream,
      row.at,
      Number(row.estimated),
      Number(row.traced),
      row.model,
      row.prompt,
      row.completion,
      JSON.stringify(row),
    ]),
  );
  return changes;
}

/** Returns the stored rows that `rows` repeat or replace, by their names. */
function storedRows(sql: Sql, rows: readonly UsageRow[]): Map<string, UsageRow> {
  const known = new Map<string, UsageRow>();
  if (areNew(sql, rows)) return known;
  const names = rows.flatMap(({ session, stream, replaces = stream }) =>
    replaces === stream
      ? [[session, stream]]
      : [
          [session, stream],
          [session, replaces],
        ],
  );
  // CROSS JOIN makes SQLite look up each name in the index, and never scan all stored rows.
  const query = `SELECT row FROM json_each(?) AS name CROSS JOIN records
    ON records.session = name.value ->> 0 AND records.stream = name.value ->> 1`;
  for (const stored of sql.exec<{ row: string }>(query, JSON.stringify(names))) {
    const row = JSON.parse(stored.row) as UsageRow;
    known.set(nameOf(row), row);
  }
  return known;
}

/** True if none of the rows is stored, as the index shows for rows of one session, which usually come last. */
function areNew(sql: Sql, rows: readonly UsageRow[]): boolean {
  const [session, ...others] = new Set(rows.map((row) => row.session));
  if (session === undefined || others.length > 0) return false;
  const streams = rows.flatMap(({ stream, replaces = stream }) => [stream, replaces]);
  const query = 'SELECT 1 FROM records WHERE session = ? AND stream BETWEEN ? AND ? LIMIT 1';
  return sql.exec(query, session, Math.min(...streams), Math.max(...streams)).toArray().length === 0;
}

function nameOf({ session, stream }: Pick<UsageRow, 'session' | 'stream'>): string {
  return `${session} ${stream}`;
}

/** Returns the row's name, and the name of the estimate that it replaces. */
function namesOf({ session, stream, replaces = stream }: UsageRow): string[] {
  return replaces === stream
    ? [nameOf({ session, stream })]
    : [stream, replaces].map((one) => nameOf({ session, stream: one }));
}
