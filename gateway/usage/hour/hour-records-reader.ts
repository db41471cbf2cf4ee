/**
 * Reads the usage records of one hour. It only needs SQL, so a host may run it in a separate thread, next to the object
 * that writes. A report over a million records takes seconds, and would delay every stream on the object's thread.
 */
import type { Sql } from '../../platform/object-context.ts';
import { type TraceQuestion, traceLine } from '../trace-line.ts';
import { NO_SESSION, type UsageRow } from '../usage-row.ts';
import { Histogram } from './histogram.ts';
import { RECORD_OWNER } from './hour-tables.ts';
import { MINUTE_MS, MinuteHistograms, type TokenLengths } from './minute-histograms.ts';
import { type KindCountQuery, type KindState, RequestKindCounts } from './request-kind-counts.ts';

/** Error code, as clients get it, of requests that no node accepted. */
export const UNSERVED = 'no_capacity';

/** The use of one model in a window of time. Windows of several objects can be added. */
export interface ModelWorkload {
  model: string;
  requests: number;
  /** Requests that arrived while no node served the model. */
  unserved: number;
  input: ReturnType<Histogram['state']>;
  output: ReturnType<Histogram['state']>;
}

/** Maximum rows of one request that are returned; each row is an attempt. */
export const ATTEMPTS_MAX = 32;

type RecordRow = { row: string };
type KindRecord = {
  session: string;
  at: number;
  model: string;
  prompt: number;
  completion: number;
  totalMs: number | null;
  judged: string | null;
  error: string | null;
  times: number;
  failed: number;
};

export type HourSums = { requests: number; failed: number; prompt: number; completion: number };

/** A user; if `user` is undefined, a key that belongs to no user. */
export interface UsageOwner {
  user: string | undefined;
  key: string;
  /** True: only requests that were refused or that failed. */
  failed: boolean;
}

/** Methods that a host may run in a separate thread. */
export const HOUR_READS = [
  'page',
  'traceLines',
  'recent',
  'ofRequest',
  'sums',
  'count',
  'workload',
  'kindWorkload',
] as const;
export type HourRead = (typeof HOUR_READS)[number];

export class HourRecordsReader {
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** False for an hour without usage, which has no tables. */
  #exists(): boolean {
    return this.#sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'records'").toArray().length > 0;
  }

  /** Returns rows in insertion order, after row `after`. `traced`: only rows of the trace export. */
  page(after: number, limit: number, traced: boolean): { n: number; row: UsageRow }[] {
    if (!this.#exists()) return [];
    const where = traced ? 'AND traced = 1' : '';
    const query = `SELECT n, row FROM records WHERE n > ? ${where} ORDER BY n LIMIT ?`;
    const rows = this.#sql.exec<RecordRow & { n: number }>(query, after, limit).toArray();
    return rows.map(({ n, row }) => ({ n, row: JSON.parse(row) as UsageRow }));
  }

  /**
   * Returns lines of the trace export from rows after `after`, and the row after which to continue; undefined: there
   * are no more.
   */
  traceLines(after: number, limit: number, question: TraceQuestion): { text: string; after: number | undefined } {
    const page = this.page(after, limit, true);
    const { from, to } = question;
    const lines = page.filter(({ row }) => row.at >= from && row.at < to).map(({ row }) => traceLine(row, question));
    return { text: lines.join(''), after: page.length < limit ? undefined : page.at(-1)?.n };
  }

  /** Returns records of one user or one key, newest first. */
  recent({ user, key, failed }: UsageOwner, limit: number): UsageRow[] {
    if (!this.#exists()) return [];
    const bad = failed ? `AND (json_extract(row, '$.error') IS NOT NULL OR json_extract(row, '$.status') >= 400)` : '';
    const query = `SELECT row FROM records WHERE ${RECORD_OWNER} = ? ${bad} ORDER BY at DESC LIMIT ?`;
    const rows = this.#sql.exec<RecordRow>(query, user ?? key, limit).toArray();
    return rows.map(({ row }) => JSON.parse(row) as UsageRow);
  }

  /** Returns all attempts of one request, by its internal id. */
  ofRequest(name: string): UsageRow[] {
    if (!this.#exists()) return [];
    const query = `SELECT row FROM records WHERE json_extract(row, '$.request') = ? ORDER BY at LIMIT ?`;
    const rows = this.#sql.exec<RecordRow>(query, name, ATTEMPTS_MAX).toArray();
    return rows.map(({ row }) => JSON.parse(row) as UsageRow);
  }

  /** Returns the sums of one user or one key in this hour. */
  sums({ user, key }: Omit<UsageOwner, 'failed'>): HourSums {
    if (!this.#exists()) return { requests: 0, failed: 0, prompt: 0, completion: 0 };
    const query = `SELECT coalesce(sum(times), 0) AS requests, coalesce(sum(times * failed), 0) AS failed,
        coalesce(sum(prompt), 0) AS prompt, coalesce(sum(completion), 0) AS completion
      FROM (SELECT prompt, completion, coalesce(json_extract(row, '$.times'), 1) AS times,
        json_extract(row, '$.error') IS NOT NULL OR coalesce(json_extract(row, '$.status'), 200) >= 400 AS failed
      FROM records WHERE ${RECORD_OWNER} = ?)`;
    return this.#sql.exec<HourSums>(query, user ?? key).one();
  }

  count(): number {
    if (!this.#exists()) return 0;
    return this.#sql.exec<{ n: number }>('SELECT count(*) AS n FROM records').one().n;
  }

  workload(from: number, to: number): ModelWorkload[] {
    if (!this.#exists()) return [];
    const models = new Map<string, TokenLengths & { unserved: number }>();
    const of = (model: string) => {
      const known = models.get(model) ?? { unserved: 0, input: new Histogram(), output: new Histogram() };
      models.set(model, known);
      return known;
    };
    const [first, last] = [Math.ceil(from / MINUTE_MS), Math.floor(to / MINUTE_MS)];
    const minutes = new MinuteHistograms(this.#sql);
    if (first < last && minutes.exist) {
      minutes.addTo(of, first, last);
      this.#addRecords(of, from, first * MINUTE_MS);
      this.#addRecords(of, last * MINUTE_MS, to);
    } else this.#addRecords(of, from, to);
    for (const { model, times } of this.#unserved(from, to)) of(model).unserved += times;
    const there = [...models].filter(([, { unserved, input }]) => unserved > 0 || input.count > 0);
    return there.map(([model, { unserved, input, output }]) => ({
      model,
      requests: input.count,
      unserved,
      input: input.state(),
      output: output.state(),
    }));
  }

  /**
   * Returns counts by kind and slot of finished requests that arrived in the window. Each record is read; callers ask
   * for some minutes at a time, so that new records need not wait.
   */
  kindWorkload(from: number, to: number, { slotMs, kinds }: KindCountQuery): KindState[] {
    if (!this.#exists()) return [];
    const models = new Map<string, RequestKindCounts>();
    const of = (model: string) => {
      const known =
        models.get(model) ?? new RequestKindCounts(Object.hasOwn(kinds, model) ? (kinds[model] ?? []) : [], slotMs);
      models.set(model, known);
      return known;
    };
    const query = `SELECT session, at, model, prompt, completion, row ->> 'totalMs' AS totalMs, row ->> 'kind' AS judged,
        row ->> 'error' AS error, coalesce(row ->> 'times', 1) AS times, coalesce(row ->> 'status', 200) >= 400 AS failed
      FROM records WHERE at >= ? AND at < ?`;
    for (const row of this.#sql.exec<KindRecord>(query, from, to)) {
      const { session, at, model, times } = row;
      const arrivedAt = at - (row.totalMs ?? 0);
      if (session === NO_SESSION) {
        if (row.error === UNSERVED) of(model).addUnserved(arrivedAt, times);
        continue;
      }
      const [totalMs, judged] = [row.totalMs ?? undefined, row.judged ?? undefined];
      of(model).add({ ...row, arrivedAt, totalMs, judged, failed: row.failed === 1 });
    }
    return [...models].map(([model, counts]) => counts.state(model));
  }

  /** A request that no engine received has no lengths. */
  #addRecords(of: (model: string) => TokenLengths, from: number, to: number): void {
    const query = 'SELECT model, prompt, completion FROM records WHERE at >= ? AND at < ? AND session <> ?';
    type Counts = { model: string; prompt: number; completion: number };
    for (const { model, prompt, completion } of this.#sql.exec<Counts>(query, from, to, NO_SESSION)) {
      const known = of(model);
      known.input.add(prompt);
      known.output.add(completion);
    }
  }

  #unserved(from: number, to: number) {
    const query = `SELECT model, sum(coalesce(json_extract(row, '$.times'), 1)) AS times FROM records
      WHERE session = ? AND at >= ? AND at < ? AND json_extract(row, '$.error') = ? GROUP BY model`;
    return this.#sql.exec<{ model: string; times: number }>(query, NO_SESSION, from, to, UNSERVED);
  }
}
