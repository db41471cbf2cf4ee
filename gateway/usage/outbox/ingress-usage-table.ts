/**
 * Usage that agents report: of their ingresses, and of requests of peer institutions to their engines. No
 * gateway of this institution opened those requests, so the numbers are self-reported and no key pays for them. Every
 * row has the reporting agent's provider and session. Its key is `ingress:PROVIDER` or `peer:INSTITUTION`.
 */
import {
  CLOCK_AHEAD_MAX_MS,
  INGRESS_USAGE_AGE_MAX_MS,
  type IngressUsage,
  parseUsageBatch,
  usageName,
} from '../../../shared/usage/ingress-usage.ts';
import type { Sql } from '../../platform/object-context.ts';
import type { UsageAnomaly } from '../usage-anomalies.ts';
import { peerKey, type UsageRow } from '../usage-row.ts';
import { countLostRecords, WAITING_MAX } from './count-lost-records.ts';

/**
 * Maximum records that a session's object keeps in addition to records that wait to be forwarded. Beyond it the oldest
 * are deleted.
 */
const RECORDS_MAX = 20_000;

/** `waiting`: the current version of a record has not been forwarded to the hour's object yet. */
export function createIngressUsageTable(sql: Sql): void {
  sql.exec(
    `CREATE TABLE IF NOT EXISTS ingress_usage (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
       estimated INTEGER NOT NULL, waiting INTEGER NOT NULL, at INTEGER NOT NULL,
       reporter TEXT NOT NULL, record TEXT NOT NULL);
     CREATE INDEX IF NOT EXISTS ingress_usage_waiting ON ingress_usage (number) WHERE waiting = 1`,
  );
}

/**
 * Stores each record once. An exact record replaces an estimated one and keeps its times. The rows are durable when
 * this returns, because the object's output gate delays the acknowledgment until they are on disk. `reporter` is the
 * agent's provider. Records that are too old, or from the future, are not stored.
 * @returns why each refused record was refused; undefined if `json` is not a batch of records
 */
export function storeIngressUsage(sql: Sql, json: string, reporter: string, now: number): UsageAnomaly[] | undefined {
  const records = parseUsageBatch(json);
  if (records === undefined) return undefined;
  const refused: UsageAnomaly[] = [];
  for (const record of records) {
    const refusal = refusalOf(record, reporter, now);
    if (refusal === undefined) storeRecord(sql, record, reporter, Math.min(record.at, now));
    else refused.push(refusal);
  }
  prune(sql);
  return refused;
}

/**
 * Deletes old records. Agents delete records when they are acknowledged, so records that wait to be forwarded exist
 * only here. They are deleted only above WAITING_MAX.
 */
function prune(sql: Sql): void {
  const behind = 'number <= (SELECT MAX(number) FROM ingress_usage) - ?';
  sql.exec(`DELETE FROM ingress_usage WHERE ${behind} AND waiting = 0`, RECORDS_MAX);
  const query = `SELECT count(*) AS n FROM ingress_usage WHERE ${behind}`;
  const { n: lost } = sql.exec<{ n: number }>(query, WAITING_MAX).one();
  if (lost === 0) return;
  sql.exec(`DELETE FROM ingress_usage WHERE ${behind}`, WAITING_MAX);
  countLostRecords(lost);
}

function refusalOf({ at, peer }: IngressUsage, reporter: string, now: number): UsageAnomaly | undefined {
  // Only agents that this institution admitted serve peer institutions for it.
  if (peer !== undefined && reporter.includes('@')) return 'foreign';
  if (at < now - INGRESS_USAGE_AGE_MAX_MS) return 'backdated';
  if (at > now + CLOCK_AHEAD_MAX_MS) return 'future';
  return undefined;
}

function storeRecord(sql: Sql, record: IngressUsage, reporter: string, at: number): void {
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

type WaitingUsage = {
  number: number;
  at: number;
  /** Provider of the agent that reported the record. */
  reporter: string;
  /**
   * The record at the time when it was read for forwarding. An exact record may have replaced it in the table since.
   */
  text: string;
};

/** Returns the oldest waiting records. */
export function pendingIngressUsage(sql: Sql, limit: number): WaitingUsage[] {
  const query =
    'SELECT number, at, reporter, record AS text FROM ingress_usage WHERE waiting = 1 ORDER BY number LIMIT ?';
  return sql.exec<WaitingUsage>(query, limit).toArray();
}

/** Marks these records as forwarded, except for those that changed meanwhile. */
export function markIngressDelivered(sql: Sql, waiting: readonly WaitingUsage[]): void {
  for (const { number, text } of waiting)
    sql.exec('UPDATE ingress_usage SET waiting = 0 WHERE number = ? AND record = ?', number, text);
}

/**
 * Converts a record to a row. `session`: the session of the agent that reported the record. The row's stream is
 * negative, because attempts have positive streams and session and stream together must be unique.
 */
export function ingressRow({ number, at, reporter, text }: WaitingUsage, session: string, traced: boolean): UsageRow {
  const record = JSON.parse(text) as IngressUsage;
  const { course, peer } = record;
  return {
    session,
    stream: -number,
    at,
    request: record.request_id,
    attempt: record.attempt,
    provider: reporter,
    key: peer === undefined ? `ingress:${reporter}` : peerKey(peer.name),
    user: '',
    project: peer?.project === undefined ? '' : `${peer.project}@${peer.name}`,
    model: record.model,
    endpoint: course?.endpoint ?? 0,
    streamed: course?.streamed ?? false,
    status: course?.status ?? null,
    prompt: record.prompt_tokens,
    completion: record.completion_tokens,
    cached: record.cached_tokens,
    reasoning: record.reasoning_tokens,
    firstMs: course?.first_ms ?? null,
    totalMs: course?.total_ms ?? null,
    aborted: record.aborted,
    estimated: record.estimated,
    complete: record.complete,
    bytes: record.answer_bytes,
    // Users of a peer institution have not agreed to our trace.
    traced: traced && peer === undefined,
    ...(peer !== undefined && { gpuMs: peer.gpu_ms }),
    ...(peer?.untracked === true && { untracked: true }),
    ...(peer === undefined &&
      record.provider !== undefined && { served: { session: record.session, provider: record.provider } }),
  };
}
