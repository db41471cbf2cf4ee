import type { UsageRecord } from '../../shared/asking/settlement.ts';

export type { UsageRecord };

/** Records one session's object keeps at least; twice as many at most, then the oldest make room. */
const KEPT = 20_000;

/** Keyed by stream: rows are appended, so that a batch writes few pages (a key of random ids wrote six per record). */
export function createUsageTable(sql: SqlStorage): void {
  sql.exec(
    'CREATE TABLE IF NOT EXISTS usage (stream INTEGER PRIMARY KEY, estimated INTEGER NOT NULL, record TEXT NOT NULL)',
  );
}

/**
 * The one place where counts arrive. Idempotent; an exact record replaces an estimated one.
 * Durable when it returns: the object's output gate holds the acknowledgement back until the rows are on disk.
 */
export function storeUsage(sql: SqlStorage, records: readonly UsageRecord[]): void {
  let newest = 0;
  for (const record of withoutDoubles(sql, records)) {
    newest = Math.max(newest, record.stream);
    sql.exec(
      `INSERT INTO usage (stream, estimated, record) VALUES (?, ?, ?)
       ON CONFLICT (stream) DO UPDATE SET estimated = excluded.estimated, record = excluded.record
       WHERE usage.estimated = 1 AND excluded.estimated = 0`,
      record.stream,
      record.estimated ? 1 : 0,
      JSON.stringify(record),
    );
  }
  prune(sql, newest);
}

/** Numbers have gaps wherever an object woke: how far apart they are says only when it is worth counting the records. */
function prune(sql: SqlStorage, newest: number): void {
  const oldest = sql.exec<{ stream: number | null }>('SELECT MIN(stream) AS stream FROM usage').one().stream ?? newest;
  if (newest - oldest < 2 * KEPT) return;
  sql.exec('DELETE FROM usage WHERE stream <= (SELECT stream FROM usage ORDER BY stream DESC LIMIT 1 OFFSET ?)', KEPT);
}

/**
 * What is left of `records` when each attempt counts once, whatever streams it was reported under: exact before estimated, then
 * the first. All that is kept is read for it, once for any number of records: it is rare that one came again.
 */
function withoutDoubles(sql: SqlStorage, records: readonly UsageRecord[]): readonly UsageRecord[] {
  if (!records.some(({ repeated }) => repeated)) return records;
  const best = new Map<string, UsageRecord>();
  for (const record of records) {
    const other = best.get(nameOf(record));
    if (other === undefined || (other.estimated && !record.estimated)) best.set(nameOf(record), record);
  }
  for (const row of sql.exec<StoredName>(STORED_NAMES).toArray()) {
    const record = best.get(nameOf(row));
    if (record === undefined || record.stream === row.stream) continue;
    if (row.estimated === 1 && !record.estimated) sql.exec('DELETE FROM usage WHERE stream = ?', row.stream);
    else best.delete(nameOf(row));
  }
  return [...best.values()];
}

type StoredName = { stream: number; estimated: number; requestId: string; attempt: number };

const STORED_NAMES = `SELECT stream, estimated, json_extract(record, '$.requestId') AS requestId,
  json_extract(record, '$.attempt') AS attempt FROM usage`;

function nameOf({ requestId, attempt }: { requestId: string; attempt: number }): string {
  return `${requestId}/${attempt}`;
}

/** The newest records, newest first. */
export function readUsage(sql: SqlStorage, limit: number): UsageRecord[] {
  const rows = sql.exec<{ record: string }>('SELECT record FROM usage ORDER BY stream DESC LIMIT ?', limit).toArray();
  return rows.map((row) => JSON.parse(row.record) as UsageRecord);
}
