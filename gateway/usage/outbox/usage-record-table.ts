import { attemptName } from '../../../shared/attempts/attempt-request.ts';
import type { UsageRecord } from '../../../shared/usage/usage-record.ts';
import { OPENING_LIFE_MS } from '../../accounts/attempt-opening-proof.ts';
import type { UsedTokens } from '../../accounts/limits/token-estimator.ts';
import type { Sql } from '../../platform/object-context.ts';
import { execEach } from '../../platform/storage/exec-each.ts';
import { countLostRecords, WAITING_MAX } from './count-lost-records.ts';

/** Minimum number of records that a session's object keeps. When it has twice this number, the oldest are deleted. */
const RECORDS_MIN = 20_000;

/** Records that are looked up and stored together. */
export const RECORDS_PER_STATEMENT = 100;

/**
 * Creates the tables. `usage` is keyed by stream, so rows are appended and a batch writes few pages (with random ids a
 * batch wrote six pages per record). `pending` lists the records that are not forwarded yet, in order of arrival. Its
 * column `estimate` contains an estimated record, because an exact record may replace it in `usage` while it is
 * forwarded, and each position must always have the same content. Its column `settled` contains the estimate that an
 * exact record replaces.
 */
export function createUsageTable(sql: Sql): void {
  sql.exec(
    `CREATE TABLE IF NOT EXISTS usage (stream INTEGER PRIMARY KEY, estimated INTEGER NOT NULL, record TEXT NOT NULL);
     CREATE TABLE IF NOT EXISTS pending (position INTEGER PRIMARY KEY AUTOINCREMENT, stream INTEGER NOT NULL,
       replaces INTEGER, again INTEGER NOT NULL, provider TEXT NOT NULL);
     CREATE TABLE IF NOT EXISTS usage_expired (expires_at INTEGER NOT NULL)`,
  );
  const columns = sql.exec<{ name: string }>('SELECT name FROM pragma_table_info(?)', 'pending').toArray();
  if (columns.some(({ name }) => name === 'estimate')) return;
  sql.exec('ALTER TABLE pending ADD COLUMN estimate TEXT; ALTER TABLE pending ADD COLUMN settled TEXT');
}

/**
 * Stores records; no other function adds any. Idempotent; an exact record replaces an estimated one. Durable when it
 * returns: the object's output gate delays the acknowledgment until the rows are on disk.
 * @returns how many late records were refused, because it is no longer known whether they were already counted
 */
export function storeUsage(sql: Sql, all: readonly UsageRecord[], provider = ''): number {
  let newest = 0;
  const records = withoutExpired(sql, all);
  const fresh = withoutDoubles(sql, records);
  for (let from = 0; from < fresh.length; from += RECORDS_PER_STATEMENT) {
    const some = fresh.slice(from, from + RECORDS_PER_STATEMENT);
    newest = some.reduce((most, { record }) => Math.max(most, record.stream), newest);
    storeTogether(sql, some, provider);
  }
  prune(sql, newest);
  return all.length - records.length;
}

/**
 * Returns the records without late records that may already have been counted. A repetition is only recognized while
 * the first record is stored here. So when old records are deleted, the proofs of all attempts of that time expire,
 * even if a proof states a later end.
 */
function withoutExpired(sql: Sql, records: readonly UsageRecord[]): readonly UsageRecord[] {
  if (records.every(({ expiresAt }) => expiresAt === undefined)) return records;
  const query = 'SELECT coalesce(max(expires_at), 0) AS expired FROM usage_expired';
  const { expired } = sql.exec<{ expired: number }>(query).one();
  return records.filter(({ expiresAt }) => expiresAt === undefined || expiresAt > expired);
}

function storeTogether(sql: Sql, fresh: readonly NewUsage[], provider: string): void {
  const known = storedAmong(
    sql,
    fresh.map(({ record }) => record.stream),
  );
  const written: UsageRecord[] = [];
  const pending: Pending[] = [];
  for (const { record, replaces } of fresh) {
    const { stream, estimated, prompt, completion } = record;
    const before = known.get(stream);
    if (before !== undefined && (estimated || !before.estimated)) continue;
    const earlier = before ?? replaces;
    known.set(stream, { stream, estimated, seen: earlier?.seen ?? record, used: { prompt, completion } });
    const whole = earlier === undefined ? record : { ...record, ...earlier.seen };
    written.push(whole);
    pending.push([stream, replaces?.stream ?? null, estimated ? whole : null, earlier?.used ?? null]);
  }
  if (written.length === 0) return;
  execEach(
    sql,
    'INSERT OR REPLACE INTO usage (stream, estimated, record) VALUES (?, ?, ?)',
    written.map((record) => [record.stream, Number(record.estimated), JSON.stringify(record)]),
  );
  storePending(sql, pending, provider);
}

/** Appends to `pending`, in order. */
function storePending(sql: Sql, pending: readonly Pending[], provider: string): void {
  if (pending.every((one) => one.slice(1).every((value) => value === null))) {
    const query = 'INSERT INTO pending (stream, again, provider) SELECT value, 0, ? FROM json_each(?)';
    return void sql.exec(query, provider, JSON.stringify(pending.map(([stream]) => stream)));
  }
  const text = (value: object | null) => (value === null ? null : JSON.stringify(value));
  execEach(
    sql,
    'INSERT INTO pending (stream, replaces, again, estimate, settled, provider) VALUES (?, ?, ?, ?, ?, ?)',
    pending.map(([stream, replaces, estimate, settled]) => [
      stream,
      replaces,
      Number(settled !== null),
      text(estimate),
      text(settled),
      provider,
    ]),
  );
}

/** Returns the records of these streams that are already stored. Usually there are none. */
function storedAmong(sql: Sql, streams: readonly number[]): Map<number, StoredUsage> {
  const known = new Map<number, StoredUsage>();
  const between = 'SELECT 1 FROM usage WHERE stream BETWEEN ? AND ? LIMIT 1';
  if (sql.exec(between, Math.min(...streams), Math.max(...streams)).toArray().length === 0) return known;
  for (const row of sql.exec<StoredKind>(STORED_KINDS, JSON.stringify(streams))) known.set(row.stream, storedOf(row));
  return known;
}

/**
 * What the gateway itself observed of an attempt, including `course` if it is known. These facts stay when an exact
 * count replaces an estimate: the agent's late report does not contain them, and with another `at` the record could be
 * in another hour than the estimate.
 */
type ObservedUsage = Pick<UsageRecord, 'at' | 'answerBytes' | 'course'>;

type StoredKind = { stream: number; estimated: number; seen: string; prompt: number; completion: number };

/** The stored part of an attempt. */
interface StoredUsage {
  stream: number;
  estimated: boolean;
  seen: ObservedUsage;
  used: UsedTokens;
}

type Pending = [stream: number, replaces: number | null, estimate: UsageRecord | null, settled: UsedTokens | null];

function storedOf({ stream, estimated, seen, prompt, completion }: StoredKind): StoredUsage {
  return { stream, estimated: estimated === 1, seen: JSON.parse(seen), used: { prompt, completion } };
}

/** SQL for `seen` as JSON. A missing member is omitted, so that it replaces nothing. */
const SEEN = `json_patch('{}', json_object('at', record ->> 'at', 'answerBytes', record ->> 'answerBytes',
  'course', json(record -> 'course'))) AS seen, record ->> 'prompt' AS prompt, record ->> 'completion' AS completion`;

const STORED_KINDS = `SELECT stream, estimated, ${SEEN} FROM usage WHERE stream IN (SELECT value FROM json_each(?))`;

/**
 * Deletes old records. The difference between two stream numbers is only an upper bound of the records between them,
 * because an object that wakes starts a new block of numbers. So the difference decides only whether the records are
 * counted.
 */
function prune(sql: Sql, newest: number): void {
  const oldest = sql.exec<{ stream: number | null }>('SELECT MIN(stream) AS stream FROM usage').one().stream ?? newest;
  if (newest - oldest < 2 * RECORDS_MIN) return;
  const waiting = sql.exec<{ n: number }>('SELECT count(*) AS n FROM pending').one().n;
  const kept = Math.max(RECORDS_MIN, Math.min(waiting, WAITING_MAX));
  const query = 'SELECT stream FROM usage ORDER BY stream DESC LIMIT 1 OFFSET ?';
  const [last] = sql.exec<{ stream: number }>(query, kept).toArray();
  if (last === undefined) return;
  // All deleted attempts were opened before the newest deleted record was made, so their proofs end at most
  // OPENING_LIFE_MS after it.
  const made = sql
    .exec<{ at: number }>("SELECT max(record ->> 'at') AS at FROM usage WHERE stream <= ?", last.stream)
    .one();
  sql.exec('DELETE FROM usage_expired');
  sql.exec('INSERT INTO usage_expired (expires_at) VALUES (?)', made.at + OPENING_LIFE_MS);
  const lost = 'FROM pending WHERE estimate IS NULL AND stream <= ?';
  countLostRecords(sql.exec<{ n: number }>(`SELECT count(*) AS n ${lost}`, last.stream).one().n);
  sql.exec(`DELETE ${lost}`, last.stream);
  sql.exec('DELETE FROM usage WHERE stream <= ?', last.stream);
}

/** A record that waits to be forwarded. */
export interface PendingUsage {
  position: number;
  record: UsageRecord;
  replaces: number | undefined;
  /** The estimate that this exact record replaces, if one was recorded at an earlier position. */
  settled: UsedTokens | undefined;
  provider: string;
}

type PendingRow = {
  position: number;
  record: string;
  replaces: number | null;
  settled: string | null;
  provider: string;
};

export function oldestPendingUsage(sql: Sql, limit: number): PendingUsage[] {
  const query = `SELECT position, coalesce(estimate, record) AS record, replaces, provider,
      coalesce(settled, iif(again, json_object('prompt', record ->> 'prompt', 'completion', record ->> 'completion'), NULL)) AS settled
    FROM pending LEFT JOIN usage USING (stream) WHERE coalesce(estimate, record) IS NOT NULL ORDER BY position LIMIT ?`;
  return sql
    .exec<PendingRow>(query, limit)
    .toArray()
    .map((row) => ({
      position: row.position,
      record: JSON.parse(row.record) as UsageRecord,
      replaces: row.replaces ?? undefined,
      settled: row.settled === null ? undefined : (JSON.parse(row.settled) as UsedTokens),
      provider: row.provider,
    }));
}

/** Returns the stored record of a stream, if it was forwarded. */
export function deliveredRecord(sql: Sql, stream: number): UsageRecord | undefined {
  const query = 'SELECT record FROM usage WHERE stream = ?1 AND NOT EXISTS (SELECT 1 FROM pending WHERE stream = ?1)';
  const [row] = sql.exec<{ record: string }>(query, stream).toArray();
  return row && (JSON.parse(row.record) as UsageRecord);
}

export function countPendingUsage(sql: Sql): number {
  return sql.exec<{ n: number }>('SELECT count(*) AS n FROM pending').one().n;
}

/** Marks the records up to this position as forwarded. */
export function markDelivered(sql: Sql, position: number): void {
  sql.exec('DELETE FROM pending WHERE position <= ?', position);
}

/**
 * Reduces `records` to one per attempt, even if it was reported under several streams: an exact record is preferred to
 * an estimate, and otherwise the first record is taken. Reads all stored records once, however many records are
 * repeated, because repetitions are rare.
 */
function withoutDoubles(sql: Sql, records: readonly UsageRecord[]): readonly NewUsage[] {
  if (!records.some(({ repeated }) => repeated)) return records.map((record) => ({ record, replaces: undefined }));
  const best = new Map<string, UsageRecord>();
  for (const record of records) {
    const other = best.get(attemptName(record));
    if (other === undefined || (other.estimated && !record.estimated)) best.set(attemptName(record), record);
  }
  const replaced = new Map<string, StoredUsage>();
  for (const row of sql.exec<StoredName>(STORED_NAMES).toArray()) {
    const record = best.get(attemptName(row));
    if (record === undefined || record.stream === row.stream) continue;
    if (row.estimated === 1 && !record.estimated) {
      sql.exec('DELETE FROM usage WHERE stream = ?', row.stream);
      replaced.set(attemptName(row), storedOf(row));
    } else best.delete(attemptName(row));
  }
  return [...best].map(([name, record]) => ({ record, replaces: replaced.get(name) }));
}

interface NewUsage {
  record: UsageRecord;
  /** The estimate under another stream that this record replaces. */
  replaces: StoredUsage | undefined;
}

type StoredName = StoredKind & { requestId: string; attempt: number };

const STORED_NAMES = `SELECT stream, estimated, ${SEEN}, json_extract(record, '$.requestId') AS requestId,
  json_extract(record, '$.attempt') AS attempt FROM usage`;

/** Returns the newest records, newest first. */
export function newestUsage(sql: Sql, limit: number): UsageRecord[] {
  const rows = sql.exec<{ record: string }>('SELECT record FROM usage ORDER BY stream DESC LIMIT ?', limit).toArray();
  return rows.map((row) => JSON.parse(row.record) as UsageRecord);
}
