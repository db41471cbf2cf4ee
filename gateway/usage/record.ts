import type { ReportedUsage } from '../../shared/wire/usage.ts';

/** What one attempt used. Named by (request, attempt): storing it twice is storing it once. */
export interface UsageRecord extends ReportedUsage {
  requestId: string;
  attempt: number;
  session: string;
  /** Who pays: given by the Worker when it opened the attempt, opaque on the way. */
  receipt: string;
  /** Bytes of the answer that came through the gateway. */
  answerBytes: number;
  /** Milliseconds since the epoch. */
  at: number;
}

/** Records one session's object keeps; the oldest make room. */
const KEPT_RECORDS = 20_000;

export function createUsageTable(sql: SqlStorage): void {
  sql.exec(`CREATE TABLE IF NOT EXISTS usage (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, request_id TEXT NOT NULL, attempt INTEGER NOT NULL, estimated INTEGER NOT NULL,
    record TEXT NOT NULL, UNIQUE (request_id, attempt))`);
}

/**
 * The one place where counts arrive. Idempotent by (request, attempt); an exact record replaces an estimated one.
 * Durable when it returns: the object's output gate holds the acknowledgement back until the rows are on disk.
 */
export function storeUsage(sql: SqlStorage, records: readonly UsageRecord[]): void {
  for (const record of records) {
    sql.exec(
      `INSERT INTO usage (request_id, attempt, estimated, record) VALUES (?, ?, ?, ?)
       ON CONFLICT (request_id, attempt) DO UPDATE SET estimated = excluded.estimated, record = excluded.record
       WHERE usage.estimated = 1 AND excluded.estimated = 0`,
      record.requestId,
      record.attempt,
      record.estimated ? 1 : 0,
      JSON.stringify(record),
    );
  }
  sql.exec('DELETE FROM usage WHERE seq <= (SELECT MAX(seq) FROM usage) - ?', KEPT_RECORDS);
}

/** The newest records, newest first. */
export function readUsage(sql: SqlStorage, limit: number): UsageRecord[] {
  const rows = sql.exec<{ record: string }>('SELECT record FROM usage ORDER BY seq DESC LIMIT ?', limit).toArray();
  return rows.map((row) => JSON.parse(row.record) as UsageRecord);
}
