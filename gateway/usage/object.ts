import type { Env } from '../env.ts';
import { GatewayObject } from '../gateway-object.ts';
import type { ObjectContext } from '../object-context.ts';
import { Reporter } from '../observe/report.ts';
import { storageHealth } from '../storage/health.ts';
import { countRow } from './count-row.ts';
import { Histogram } from './histogram.ts';
import { type Lengths, MINUTE_MS, Minutes } from './minutes.ts';
import type { Annotation } from './prefixes.ts';
import { NO_SESSION, type UsageRow } from './row.ts';
import { storeRows } from './stored-rows.ts';
import { addToTotals, addTotal, forgetBatches, nameOf, type Total, totalOf } from './totals.ts';

/** Totals are added in D1 so long after their first record came. */
const TOTALS_MS = 2_000;
const AGAIN_MS = 10_000;
/** Groups at a time: 50 statements. */
const GROUPS = 300;

/** Records are kept so long, unless the environment says otherwise; totals for ever. */
const KEPT_DAYS = 400;
const DAY_MS = 86_400_000;
/** The environment may say another number meanwhile. */
const LOOK_AGAIN_MS = 7 * DAY_MS;

/** What no node took, as the gateway tells its clients. */
const UNSERVED = 'no_capacity';

/** How one model was used in a window of time; windows of several objects are added up. */
export interface ModelWorkload {
  model: string;
  requests: number;
  /** Asked for while no node served it. */
  unserved: number;
  input: ReturnType<Histogram['state']>;
  output: ReturnType<Histogram['state']>;
}

type Stored = { row: string };

export type HourSums = { requests: number; failed: number; prompt: number; completion: number };

/** A person, or a key that is nobody's. */
export interface Whose {
  user: string | undefined;
  key: string;
  /** Only what was refused or failed. */
  failed: boolean;
}

/**
 * All that was used in one hour, record by record. Survives eviction: everything. What is added is on disk when the answer goes
 * out; what it adds to the totals in D1 waits here until D1 has it.
 */
export class UsageObject extends GatewayObject {
  readonly #shard: string;
  readonly #reporter = new Reporter();
  #exists: boolean;
  readonly #minutes: Minutes;
  /** Its lengths are counted by minute too. */
  #counted: boolean;
  /** When the alarm rings. */
  #alarmAt = Number.POSITIVE_INFINITY;
  #sent: Promise<void> = Promise.resolve();

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    this.#shard = ctx.name;
    const [table] = ctx.storage.sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'records'").toArray();
    this.#exists = table !== undefined;
    this.#minutes = new Minutes(ctx.storage.sql);
    this.#counted = this.#exists && this.#minutes.exist;
    if (this.#exists && this.#waits()) this.#schedule(TOTALS_MS);
  }

  /** Not before there is something to keep: whoever asks about hours in which nothing was used leaves nothing behind. */
  #create(): void {
    if (this.#exists) return;
    this.#exists = true;
    this.ctx.storage.sql.exec(`CREATE TABLE records (n INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL,
        stream INTEGER NOT NULL, at INTEGER NOT NULL, estimated INTEGER NOT NULL, traced INTEGER NOT NULL,
        model TEXT NOT NULL, prompt INTEGER NOT NULL, completion INTEGER NOT NULL, row TEXT NOT NULL);
      CREATE UNIQUE INDEX records_name ON records (session, stream);
      CREATE INDEX records_at ON records (at);
      CREATE TABLE totals (name TEXT PRIMARY KEY, total TEXT NOT NULL);
      CREATE TABLE sending (batch INTEGER NOT NULL, total TEXT NOT NULL)`);
    this.#minutes.create();
    this.#counted = true;
  }

  /** Idempotent; an exact row replaces an estimated one. */
  add(rows: readonly UsageRow[]): void {
    this.#create();
    const now = Date.now();
    const changes = storeRows(this.ctx.storage.sql, rows, (row) => countRow(this.#reporter.counts, row, now));
    if (this.#counted) this.#minutes.count(changes);
    const totals = new Map<string, Total>();
    for (const { row, sign } of changes) {
      const total = totalOf(row, sign);
      const known = totals.get(nameOf(total));
      if (known === undefined) totals.set(nameOf(total), total);
      else addTotal(known, total);
    }
    const { sql } = this.ctx.storage;
    for (const [name, total] of totals) {
      const known = sql.exec<{ total: string }>('SELECT total FROM totals WHERE name = ?', name).toArray()[0];
      if (known !== undefined) addTotal(total, JSON.parse(known.total));
      sql.exec('INSERT OR REPLACE INTO totals (name, total) VALUES (?, ?)', name, JSON.stringify(total));
    }
    if (totals.size === 0) return;
    this.#schedule(TOTALS_MS);
    this.#reporter.touch(this.env, this.ctx, Date.now());
  }

  /** What became known of records after they came; of those that are not here, nothing. */
  annotate(notes: readonly Annotation[]): void {
    if (!this.#exists) return;
    const query = `UPDATE records SET row = json_set(row, '$.buckets', json(?)) WHERE session = ? AND stream = ?`;
    for (const { session, stream, buckets } of notes) {
      this.ctx.storage.sql.exec(query, JSON.stringify(buckets), session, stream);
    }
  }

  /** Deletes what is on record of a user. Sums that still waited for D1 are there when this returns, for whoever asks next. */
  async forget(user: string): Promise<void> {
    if (!this.#exists) return;
    while (this.#waits()) await this.#send();
    this.ctx.storage.sql.exec("DELETE FROM records WHERE json_extract(row, '$.user') = ?", user);
  }

  /** Rows in the order of coming, after `n`; `traced`: of the trace export alone. */
  page(after: number, limit: number, traced: boolean): { n: number; row: UsageRow }[] {
    if (!this.#exists) return [];
    const where = traced ? 'AND traced = 1' : '';
    const query = `SELECT n, row FROM records WHERE n > ? ${where} ORDER BY n LIMIT ?`;
    const rows = this.ctx.storage.sql.exec<Stored & { n: number }>(query, after, limit).toArray();
    return rows.map(({ n, row }) => ({ n, row: JSON.parse(row) as UsageRow }));
  }

  /** One person's records, or one key's, the newest first. */
  recent({ user, key, failed }: Whose, limit: number): UsageRow[] {
    if (!this.#exists) return [];
    const [name, value] = user === undefined ? ['$.key', key] : ['$.user', user];
    const bad = failed ? `AND (json_extract(row, '$.error') IS NOT NULL OR json_extract(row, '$.status') >= 400)` : '';
    const query = `SELECT row FROM records WHERE json_extract(row, ?) = ? ${bad} ORDER BY at DESC LIMIT ?`;
    const rows = this.ctx.storage.sql.exec<Stored>(query, name ?? '', value ?? '', limit).toArray();
    return rows.map(({ row }) => JSON.parse(row) as UsageRow);
  }

  /** What one person, or one key, used in this hour. */
  sums({ user, key }: Omit<Whose, 'failed'>): HourSums {
    if (!this.#exists) return { requests: 0, failed: 0, prompt: 0, completion: 0 };
    const [name, value] = user === undefined ? ['$.key', key] : ['$.user', user];
    const query = `SELECT coalesce(sum(times), 0) AS requests, coalesce(sum(times * failed), 0) AS failed,
        coalesce(sum(prompt), 0) AS prompt, coalesce(sum(completion), 0) AS completion
      FROM (SELECT prompt, completion, coalesce(json_extract(row, '$.times'), 1) AS times,
        json_extract(row, '$.error') IS NOT NULL OR coalesce(json_extract(row, '$.status'), 200) >= 400 AS failed
      FROM records WHERE json_extract(row, ?) = ?)`;
    return this.ctx.storage.sql.exec<HourSums>(query, name ?? '', value ?? '').one();
  }

  count(): number {
    if (!this.#exists) return 0;
    return this.ctx.storage.sql.exec<{ n: number }>('SELECT count(*) AS n FROM records').one().n;
  }

  workload(from: number, to: number): ModelWorkload[] {
    if (!this.#exists) return [];
    const models = new Map<string, Lengths & { unserved: number }>();
    const of = (model: string) => {
      const known = models.get(model) ?? { unserved: 0, input: new Histogram(), output: new Histogram() };
      models.set(model, known);
      return known;
    };
    const [first, last] = [Math.ceil(from / MINUTE_MS), Math.floor(to / MINUTE_MS)];
    if (this.#counted && first < last) {
      this.#minutes.addTo(of, first, last);
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

  /** What no engine saw has no lengths. */
  #addRecords(of: (model: string) => Lengths, from: number, to: number): void {
    const query = 'SELECT model, prompt, completion FROM records WHERE at >= ? AND at < ? AND session <> ?';
    type Counts = { model: string; prompt: number; completion: number };
    for (const { model, prompt, completion } of this.ctx.storage.sql.exec<Counts>(query, from, to, NO_SESSION)) {
      const known = of(model);
      known.input.add(prompt);
      known.output.add(completion);
    }
  }

  #unserved(from: number, to: number) {
    const query = `SELECT model, sum(coalesce(json_extract(row, '$.times'), 1)) AS times FROM records
      WHERE session = ? AND at >= ? AND at < ? AND json_extract(row, '$.error') = ? GROUP BY model`;
    return this.ctx.storage.sql.exec<{ model: string; times: number }>(query, NO_SESSION, from, to, UNSERVED);
  }

  async alarm(): Promise<void> {
    this.#alarmAt = Number.POSITIVE_INFINITY;
    try {
      if (!this.#exists) return;
      if (storageHealth.failure !== undefined) return this.#schedule(AGAIN_MS);
      await this.#send();
      if (this.#waits()) return this.#schedule(TOTALS_MS);
      const left = this.#keptUntil() - Date.now();
      if (left > 0) this.#schedule(Math.min(left, LOOK_AGAIN_MS));
      else await this.#end();
    } catch (error) {
      console.error(`totals of ${this.#shard} wait: ${error instanceof Error ? error.message : error}`);
      this.#schedule(AGAIN_MS);
    }
  }

  /** Its totals stay in D1; the records go. */
  async #end(): Promise<void> {
    // A record that comes later begins with batch 1 anew: one that D1 remembered would be taken for it.
    await forgetBatches(this.env, this.#shard);
    if (this.#waits()) return this.#schedule(TOTALS_MS);
    this.#exists = false;
    await this.ctx.storage.deleteAll();
  }

  #keptUntil(): number {
    const days = Number(this.env.USAGE_KEPT_DAYS || KEPT_DAYS);
    return Date.parse(`${this.#shard}:00:00Z`) + (Number.isFinite(days) ? days : KEPT_DAYS) * DAY_MS;
  }

  /** One after the other: whoever ends a batch must not end the next one's. */
  #send(): Promise<void> {
    this.#sent = this.#sent.catch(() => {}).then(() => this.#sendNext());
    return this.#sent;
  }

  /** A batch that was begun is ended first, under its own number: whether D1 has it is D1's to say. */
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
    const totals = sending.map(({ total }) => JSON.parse(total) as Total);
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
