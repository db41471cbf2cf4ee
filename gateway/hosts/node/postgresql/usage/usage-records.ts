/**
 * Usage records in PostgreSQL, with the methods of the hours' objects. Each process writes and reads them itself, so no
 * record waits for another process.
 */
import { inBackground } from '../../../../../shared/timing/in-background.ts';
import type { Env } from '../../../../env.ts';
import { environmentNumber } from '../../../../environment-checks.ts';
import { MetricsReporter } from '../../../../observe/metrics-reporter.ts';
import type { Background, ObjectNamespace, ObjectStub } from '../../../../platform/object-context.ts';
import { telemetrySink } from '../../../../platform/telemetry-sink.ts';
import { RETENTION_DEFAULT_DAYS, type UsageObject } from '../../../../usage/hour/usage-hour-object.ts';
import { countUsageRow } from '../../../../usage/hour/usage-metrics.ts';
import type { PrefixAnnotation } from '../../../../usage/prefix-block-ids.ts';
import { type UsageRow, usageShardOf } from '../../../../usage/usage-row.ts';
import { PostgresPool } from '../postgres-pool.ts';
import { recordName } from './record-columns.ts';
import { UsageReader } from './usage-reader.ts';
import { UsageWriter } from './usage-writer.ts';

/** Connections for reports, and the maximum time of a report's query. */
const REPORTS = { most: 2, queryTimeoutMs: 120_000 };
const DAY_MS = 86_400_000;
const PRUNE_MS = 60 * 60_000;
/** Maximum rows of one DELETE, so that it takes less than a second. */
const PRUNED_TOGETHER = 5_000;

interface UsageRecordsOptions {
  url: string;
  env(): Env;
  background: Background;
  log(line: string): void;
}

export class UsageRecords {
  readonly #options: UsageRecordsOptions;
  readonly #pool: PostgresPool;
  readonly #reports: PostgresPool;
  readonly #writer: UsageWriter;
  readonly #reporter = new MetricsReporter();
  readonly #pruning: NodeJS.Timeout;

  constructor(options: UsageRecordsOptions) {
    this.#options = options;
    const { url, log } = options;
    this.#pool = new PostgresPool({ url, name: 'otela-gateway usage', most: 1 });
    this.#reports = new PostgresPool({ url, name: 'otela-gateway usage reports', ...REPORTS });
    this.#writer = new UsageWriter({ pool: this.#pool, onStored: (rows) => this.#onStored(rows) });
    this.#pruning = setInterval(() => inBackground('deletion of old usage records', this.prune(), log), PRUNE_MS);
    this.#pruning.unref();
  }

  get namespace(): ObjectNamespace<UsageObject> {
    return { getByName: (hour) => this.#hour(hour) };
  }

  #hour(hour: string): ObjectStub<UsageObject> {
    const reader = new UsageReader(this.#reports, hour);
    return {
      add: (rows) => this.#writer.add(rows),
      annotate: (notes) => this.#annotate(notes),
      forget: (user) => this.#forget(hour, user),
      page: (...args) => reader.page(...args),
      traceLines: (...args) => reader.traceLines(...args),
      recent: (...args) => reader.recent(...args),
      ofRequest: (...args) => reader.ofRequest(...args),
      sums: (...args) => reader.sums(...args),
      count: () => reader.count(),
      workload: (...args) => reader.workload(...args),
      kindWorkload: (...args) => reader.kindWorkload(...args),
      fetch: () => Promise.reject(new Error('usage records have no fetch')),
    };
  }

  #onStored(rows: readonly UsageRow[]): void {
    if (rows.length === 0) return;
    const { env, background } = this.#options;
    const now = Date.now();
    for (const row of rows) {
      telemetrySink.sink?.usage(row);
      countUsageRow(this.#reporter.counts, row, now);
    }
    this.#reporter.touch(env(), background, now);
  }

  /** Adds data that became known after the records arrived. Records that are not stored are ignored. */
  async #annotate(notes: readonly PrefixAnnotation[]): Promise<void> {
    const query = `UPDATE usage_records r SET buckets = given.buckets
      FROM unnest($1::text[], $2::text[]) AS given (name, buckets) WHERE r.name = given.name`;
    await this.#pool.query(query, [notes.map(recordName), notes.map(({ buckets }) => JSON.stringify(buckets))]);
  }

  async #forget(hour: string, user: string): Promise<void> {
    await this.#pool.query('DELETE FROM usage_records WHERE hour = $1 AND "user" = $2', [hour, user]);
  }

  /** Deletes records after their retention. The totals stay. Several processes may do so at the same time. */
  async prune(now = Date.now()): Promise<void> {
    const days = environmentNumber(this.#options.env(), 'USAGE_KEPT_DAYS') ?? RETENTION_DEFAULT_DAYS;
    const before = usageShardOf(now - days * DAY_MS);
    const query = `DELETE FROM usage_records WHERE name IN
      (SELECT name FROM usage_records WHERE hour < $1 ORDER BY hour LIMIT ${PRUNED_TOGETHER} FOR UPDATE SKIP LOCKED)`;
    for (;;) {
      const { count } = await this.#pool.query(query, [before]);
      if (count < PRUNED_TOGETHER) return;
    }
  }

  async close(): Promise<void> {
    clearInterval(this.#pruning);
    await Promise.all([this.#pool.close(), this.#reports.close()]);
  }
}
