import { errorText } from '../../../shared/text/error-text.ts';
import type { Env } from '../../env.ts';
import { environmentNumber } from '../../environment-checks.ts';
import { MetricsReporter } from '../../observe/metrics-reporter.ts';
import { GatewayObject } from '../../platform/gateway-object.ts';
import type { ObjectContext } from '../../platform/object-context.ts';
import { telemetrySink } from '../../platform/telemetry-sink.ts';
import type { PrefixAnnotation } from '../prefix-block-ids.ts';
import type { UsageRow } from '../usage-row.ts';
import {
  addToTotals,
  addTotal,
  forgetBatches,
  readTotal,
  totalKey,
  type UsageTotal,
  usageTotalOf,
} from '../usage-totals.ts';
import { HourRecordsReader } from './hour-records-reader.ts';
import { createHourTables, RECORD_OWNER } from './hour-tables.ts';
import { MinuteHistograms } from './minute-histograms.ts';
import { storeRows } from './store-rows.ts';
import { countUsageRow } from './usage-metrics.ts';

/** Delay from the first new record until totals are added in D1. */
const TOTALS_MS = 2_000;
const RETRY_MS = 10_000;
/** Maximum totals in one batch, which is one transaction in D1. */
const GROUPS = 300;

/** Default retention of records. Totals are kept forever. */
export const RETENTION_DEFAULT_DAYS = 400;
const DAY_MS = 86_400_000;
/** Maximum time until the retention is checked again, because the environment may change it meanwhile. */
export const RETENTION_CHECK_MS = 7 * DAY_MS;

/**
 * The usage object: all usage records of one hour. Everything is stored. Added records are on disk when the response is
 * sent; their totals wait here until D1 has them.
 */
export class UsageObject extends GatewayObject {
  readonly #shard: string;
  readonly #reporter = new MetricsReporter();
  #exists: boolean;
  readonly #minutes: MinuteHistograms;
  readonly #reader: HourRecordsReader;
  /** True if lengths are also counted by minute. */
  #counted: boolean;
  /** When the next alarm fires; milliseconds since the epoch. */
  #alarmAt = Number.POSITIVE_INFINITY;
  #sent: Promise<void> = Promise.resolve();

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    this.#shard = ctx.name;
    const [table] = ctx.storage.sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'records'").toArray();
    this.#exists = table !== undefined;
    this.#minutes = new MinuteHistograms(ctx.storage.sql);
    this.#reader = new HourRecordsReader(ctx.storage.sql);
    this.#counted = this.#exists && this.#minutes.exist;
    if (this.#exists && this.#waits()) this.#schedule(TOTALS_MS);
  }

  /**
   * Creates the tables only when there is something to store, so that a query for an hour without usage leaves no file.
   */
  #create(): void {
    if (this.#exists) return;
    this.#exists = true;
    createHourTables(this.ctx.storage.sql);
    this.#counted = true;
  }

  /** Stores rows. Idempotent; an exact row replaces an estimated row. */
  add(rows: readonly UsageRow[]): void {
    this.#create();
    const now = Date.now();
    const changes = storeRows(this.ctx.storage.sql, rows, (row) => {
      telemetrySink.sink?.usage(row);
      countUsageRow(this.#reporter.counts, row, now);
    });
    if (this.#counted) this.#minutes.count(changes);
    const totals = new Map<string, UsageTotal>();
    for (const { row, sign } of changes) {
      const total = usageTotalOf(row, sign);
      const known = totals.get(totalKey(total));
      if (known === undefined) totals.set(totalKey(total), total);
      else addTotal(known, total);
    }
    const { sql } = this.ctx.storage;
    for (const [name, total] of totals) {
      const known = sql.exec<{ total: string }>('SELECT total FROM totals WHERE name = ?', name).toArray()[0];
      if (known !== undefined) addTotal(total, readTotal(known.total));
      sql.exec('INSERT OR REPLACE INTO totals (name, total) VALUES (?, ?)', name, JSON.stringify(total));
    }
    if (totals.size === 0) return;
    this.#schedule(TOTALS_MS);
    this.#reporter.touch(this.env, this.ctx, Date.now());
  }

  /** Adds data that became known after the records arrived. Records that are not here are ignored. */
  annotate(notes: readonly PrefixAnnotation[]): void {
    if (!this.#exists) return;
    const query = `UPDATE records SET row = json_set(row, '$.buckets', json(?)) WHERE session = ? AND stream = ?`;
    for (const { session, stream, buckets } of notes) {
      this.ctx.storage.sql.exec(query, JSON.stringify(buckets), session, stream);
    }
  }

  /** Deletes a user's records. When this resolves, totals that still waited are in D1. */
  async forget(user: string): Promise<void> {
    if (!this.#exists) return;
    while (this.#waits()) await this.#send();
    this.ctx.storage.sql.exec(`DELETE FROM records WHERE ${RECORD_OWNER} = ?`, user);
  }

  // --- reading: see hour/hour-records-reader.ts ------------------------------------------------------------------------------------

  page(...args: Parameters<HourRecordsReader['page']>): ReturnType<HourRecordsReader['page']> {
    return this.#reader.page(...args);
  }

  /** Not named `trace`, because workerd reserves that name for tail Workers, and no stub can call it. */
  traceLines(...args: Parameters<HourRecordsReader['traceLines']>): ReturnType<HourRecordsReader['traceLines']> {
    return this.#reader.traceLines(...args);
  }

  recent(...args: Parameters<HourRecordsReader['recent']>): ReturnType<HourRecordsReader['recent']> {
    return this.#reader.recent(...args);
  }

  ofRequest(...args: Parameters<HourRecordsReader['ofRequest']>): ReturnType<HourRecordsReader['ofRequest']> {
    return this.#reader.ofRequest(...args);
  }

  sums(...args: Parameters<HourRecordsReader['sums']>): ReturnType<HourRecordsReader['sums']> {
    return this.#reader.sums(...args);
  }

  count(): number {
    return this.#reader.count();
  }

  workload(...args: Parameters<HourRecordsReader['workload']>): ReturnType<HourRecordsReader['workload']> {
    return this.#reader.workload(...args);
  }

  kindWorkload(...args: Parameters<HourRecordsReader['kindWorkload']>): ReturnType<HourRecordsReader['kindWorkload']> {
    return this.#reader.kindWorkload(...args);
  }

  async alarm(): Promise<void> {
    this.#alarmAt = Number.POSITIVE_INFINITY;
    try {
      if (!this.#exists) return;
      if (this.ctx.health.failure !== undefined) return this.#schedule(RETRY_MS);
      await this.#send();
      if (this.#waits()) return this.#schedule(TOTALS_MS);
      const left = this.#retentionEnd() - Date.now();
      if (left > 0) this.#schedule(Math.min(left, RETENTION_CHECK_MS));
      else await this.#end();
    } catch (error) {
      console.error(`cannot store the totals of ${this.#shard} yet: ${errorText(error)}`);
      this.#schedule(RETRY_MS);
    }
  }

  /** Deletes the records after their retention. The totals stay in D1. */
  async #end(): Promise<void> {
    // If a late record creates this object again, its first batch has number 1 again. D1 would ignore it if it still
    // had the number of the earlier batch 1.
    await forgetBatches(this.env, this.#shard);
    if (this.#waits()) return this.#schedule(TOTALS_MS);
    this.#exists = false;
    await this.ctx.storage.deleteAll();
  }

  #retentionEnd(): number {
    const days = environmentNumber(this.env, 'USAGE_KEPT_DAYS') ?? RETENTION_DEFAULT_DAYS;
    return Date.parse(`${this.#shard}:00:00Z`) + days * DAY_MS;
  }

  /**
   * Sends batches one after another, because the table `sending` is emptied after each batch and so must not contain
   * rows of another batch.
   */
  #send(): Promise<void> {
    this.#sent = this.#sent.catch(() => {}).then(() => this.#sendNext());
    return this.#sent;
  }

  /**
   * Sends the next batch. A batch that is still in `sending` is sent again under the same number, because only D1 knows
   * whether it was already added.
   */
  async #sendNext(): Promise<void> {
    const { sql, kv } = this.ctx.storage;
    let sending = sql.exec<{ total: string }>('SELECT total FROM sending').toArray();
    if (sending.length === 0) {
      kv.put('batch', this.#batch + 1);
      sql.exec(
        'INSERT INTO sending (batch, total) SELECT ?, total FROM totals ORDER BY name LIMIT ?',
        this.#batch,
        GROUPS,
      );
      sql.exec('DELETE FROM totals WHERE name IN (SELECT name FROM totals ORDER BY name LIMIT ?)', GROUPS);
      sending = sql.exec<{ total: string }>('SELECT total FROM sending').toArray();
    }
    if (sending.length === 0) return;
    const totals = sending.map(({ total }) => readTotal(total));
    await addToTotals(this.env, this.#shard, this.#batch, totals);
    sql.exec('DELETE FROM sending');
  }

  get #batch(): number {
    return this.ctx.storage.kv.get<number>('batch') ?? 0;
  }

  #waits(): boolean {
    const query = 'SELECT EXISTS (SELECT 1 FROM totals) OR EXISTS (SELECT 1 FROM sending) AS waits';
    return this.ctx.storage.sql.exec<{ waits: number }>(query).one().waits === 1;
  }

  #schedule(ms: number): void {
    const at = Date.now() + ms;
    if (this.#alarmAt <= at) return;
    this.#alarmAt = at;
    this.ctx.waitUntil(this.ctx.storage.setAlarm(at));
  }
}
