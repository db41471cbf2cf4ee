import type { ReportedUsage } from '../../shared/wire/usage.ts';

/** What one attempt used. Storing it twice is storing it once. */
export interface UsageRecord extends ReportedUsage {
  requestId: string;
  attempt: number;
  session: string;
  /** The attempt's stream, unique within its session: a report that is said again says it with the same number. */
  stream: number;
  /** Who pays: given by the Worker when it opened the attempt, opaque on the way. */
  receipt: string;
  /** Bytes of the answer that came through the gateway. */
  answerBytes: number;
  /** Milliseconds since the epoch. */
  at: number;
  /** The same attempt may have reported under another stream: a lost object, a parked reader. */
  repeated: boolean;
}

/** Records one session's object keeps; the oldest make room. */
const KEPT_STREAMS = 20_000;

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
  for (const record of records) {
    newest = Math.max(newest, record.stream);
    if (record.repeated && isStored(sql, record)) continue;
    sql.exec(
      `INSERT INTO usage (stream, estimated, record) VALUES (?, ?, ?)
       ON CONFLICT (stream) DO UPDATE SET estimated = excluded.estimated, record = excluded.record
       WHERE usage.estimated = 1 AND excluded.estimated = 0`,
      record.stream,
      record.estimated ? 1 : 0,
      JSON.stringify(record),
    );
  }
  sql.exec('DELETE FROM usage WHERE stream <= ?', newest - KEPT_STREAMS);
}

/** Looked for in all that is kept: rare, and right. */
function isStored(sql: SqlStorage, { requestId, attempt, stream }: UsageRecord): boolean {
  const same = `json_extract(record, '$.requestId') = ? AND json_extract(record, '$.attempt') = ?`;
  const query = `SELECT 1 FROM usage WHERE stream <> ? AND estimated = 0 AND ${same} LIMIT 1`;
  return sql.exec(query, stream, requestId, attempt).toArray().length > 0;
}

/** The newest records, newest first. */
export function readUsage(sql: SqlStorage, limit: number): UsageRecord[] {
  const rows = sql.exec<{ record: string }>('SELECT record FROM usage ORDER BY stream DESC LIMIT ?', limit).toArray();
  return rows.map((row) => JSON.parse(row.record) as UsageRecord);
}
