/**
 * What agents used through their own ingresses, without a gateway: their word, and no key pays for it. It stands in the books
 * beside everything else, under the key `ingress:PROVIDER` of the provider whose agent says so.
 */
import { type IngressUsage, parseUsageBatch, usageName } from '../../shared/asking/ingress-usage.ts';
import type { UsageRow } from './row.ts';

/** Records that one session's object keeps; the oldest make room. */
const KEPT = 20_000;

/** A record's time is the agent's: what it says of times beyond these is dated now, and no hour's object is made for it. */
const PAST_MS = 31 * 24 * 60 * 60_000;
const FUTURE_MS = 5 * 60_000;

/** `waiting`: not handed on to the hour's object yet, as it is now. */
export function createIngressUsageTable(sql: SqlStorage): void {
  sql.exec(
    `CREATE TABLE IF NOT EXISTS ingress_usage (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
       estimated INTEGER NOT NULL, waiting INTEGER NOT NULL, at INTEGER NOT NULL,
       reporter TEXT NOT NULL, record TEXT NOT NULL);
     CREATE INDEX IF NOT EXISTS ingress_usage_waiting ON ingress_usage (number) WHERE waiting = 1`,
  );
}

/**
 * Said twice it counts once; an exact record replaces an estimated one, whose course stays where it has none of its own. Durable when it returns: the object's output gate holds
 * the acknowledgement back until the rows are on disk. `reporter`: the agent's provider. False for what is no batch of records.
 */
export function storeIngressUsage(sql: SqlStorage, json: string, reporter: string, now: number): boolean {
  const records = parseUsageBatch(json);
  if (records === undefined) return false;
  for (const record of records) {
    const at = record.at < now - PAST_MS || record.at > now + FUTURE_MS ? now : record.at;
    sql.exec(
      `INSERT INTO ingress_usage (name, estimated, waiting, at, reporter, record) VALUES (?, ?, 1, ?, ?, ?)
       ON CONFLICT (name) DO UPDATE SET estimated = excluded.estimated, waiting = 1,
         record = json_patch(json_patch('{}', json_object('course', json(ingress_usage.record -> 'course'))), excluded.record)
       WHERE ingress_usage.estimated = 1 AND excluded.estimated = 0`,
      usageName(record),
      record.estimated ? 1 : 0,
      at,
      reporter,
      JSON.stringify(record),
    );
  }
  sql.exec('DELETE FROM ingress_usage WHERE number <= (SELECT MAX(number) FROM ingress_usage) - ?', KEPT);
  return true;
}

type WaitingUsage = {
  number: number;
  at: number;
  /** The provider whose agent says so. */
  reporter: string;
  /** As it was when it was read: it may become exact on its way. */
  text: string;
};

/** The oldest that wait. */
export function waitingIngressUsage(sql: SqlStorage, limit: number): WaitingUsage[] {
  const query =
    'SELECT number, at, reporter, record AS text FROM ingress_usage WHERE waiting = 1 ORDER BY number LIMIT ?';
  return sql.exec<WaitingUsage>(query, limit).toArray();
}

/** They are in other hands. */
export function ingressUsageHandedOn(sql: SqlStorage, waiting: readonly WaitingUsage[]): void {
  for (const { number, text } of waiting)
    sql.exec('UPDATE ingress_usage SET waiting = 0 WHERE number = ? AND record = ?', number, text);
}

/** `session`: of the agent that says so; numbers below zero are no streams, so that no row has another's name. */
export function ingressRow({ number, at, reporter, text }: WaitingUsage, session: string): UsageRow {
  const record = JSON.parse(text) as IngressUsage;
  const { course } = record;
  return {
    session,
    stream: -number,
    at,
    request: record.request_id,
    attempt: record.attempt,
    provider: record.provider ?? reporter,
    key: `ingress:${reporter}`,
    user: '',
    project: '',
    model: record.model,
    endpoint: course?.endpoint ?? 0,
    streamed: course?.streamed ?? false,
    status: course?.status ?? 0,
    prompt: record.prompt_tokens,
    completion: record.completion_tokens,
    cached: record.cached_tokens,
    reasoning: record.reasoning_tokens,
    firstMs: course?.first_ms ?? 0,
    totalMs: course?.total_ms ?? 0,
    aborted: record.aborted,
    estimated: record.estimated,
    complete: record.complete,
    bytes: record.answer_bytes,
    traced: false,
  };
}
