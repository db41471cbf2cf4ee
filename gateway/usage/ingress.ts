import { type IngressUsage, parseUsageBatch, usageName } from '../../shared/asking/ingress-usage.ts';

/** Records that one session's object keeps; the oldest make room. */
const KEPT = 20_000;

/** Counted rather than asked: rows are only ever added, so the newest number tells how many there may be. */
export function createIngressUsageTable(sql: SqlStorage): void {
  sql.exec(
    `CREATE TABLE IF NOT EXISTS ingress_usage (
       number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, estimated INTEGER NOT NULL, record TEXT NOT NULL)`,
  );
}

/**
 * What this session's agent used through its own ingress, without a gateway: its word, and nobody's key pays for it. Said twice
 * it counts once; an exact record replaces an estimated one. Durable when it returns: the object's output gate holds the
 * acknowledgement back until the rows are on disk. False for what is no batch of records.
 */
export function storeIngressUsage(sql: SqlStorage, json: string): boolean {
  const records = parseUsageBatch(json);
  if (records === undefined) return false;
  for (const record of records) {
    sql.exec(
      `INSERT INTO ingress_usage (name, estimated, record) VALUES (?, ?, ?)
       ON CONFLICT (name) DO UPDATE SET estimated = excluded.estimated, record = excluded.record
       WHERE ingress_usage.estimated = 1 AND excluded.estimated = 0`,
      usageName(record),
      record.estimated ? 1 : 0,
      JSON.stringify(record),
    );
  }
  sql.exec('DELETE FROM ingress_usage WHERE number <= (SELECT MAX(number) FROM ingress_usage) - ?', KEPT);
  return true;
}

/** The newest records, newest first. */
export function readIngressUsage(sql: SqlStorage, limit: number): IngressUsage[] {
  const rows = sql.exec<{ record: string }>('SELECT record FROM ingress_usage ORDER BY number DESC LIMIT ?', limit);
  return rows.toArray().map((row) => JSON.parse(row.record) as IngressUsage);
}
