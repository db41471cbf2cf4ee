/**
 * Stores the usage records of this process in PostgreSQL, and adds them to the totals in the same transaction. Records
 * that arrive while a transaction runs are stored together by the next one.
 */
import { neverRejects } from '../../../../../shared/timing/in-background.ts';
import type { UsageRow } from '../../../../usage/usage-row.ts';
import { addTotal, totalKey, type UsageTotal, usageTotalOf } from '../../../../usage/usage-totals.ts';
import { type Connection, isDataError, type PostgresPool, STATEMENT_TIMEOUT_MS } from '../postgres-pool.ts';
import { addTotals } from './add-totals.ts';
import { RECORD_COLUMNS, recordName, recordValues, storableRow } from './record-columns.ts';

/** Maximum rows of one transaction: about one MiB. */
const ROWS_PER_TRANSACTION = 1_000;
/** Maximum rows that wait. Above it, callers are refused and send their rows again later. */
const WAITING_MAX_ROWS = 50_000;

const BEGIN = `BEGIN; SET LOCAL statement_timeout = ${STATEMENT_TIMEOUT_MS};
  SET LOCAL idle_in_transaction_session_timeout = ${STATEMENT_TIMEOUT_MS}`;

const NAMES = Object.keys(RECORD_COLUMNS).map((name) => `"${name}"`);
const LISTS = Object.values(RECORD_COLUMNS).map((type, at) => `$${at + 1}::${type}[]`);
const KEPT_ON_REPLACEMENT: readonly string[] = ['"name"', '"row"'];

/**
 * `replaced` is the estimate that an exact record replaced, and NULL for a new record. A record that changes nothing is
 * not returned. Rows are stored in the order of their names, so that two transactions never wait for each other.
 */
const STORE = `INSERT INTO usage_records (${NAMES.join(', ')})
  SELECT * FROM unnest(${LISTS.join(', ')}) AS given (${NAMES.join(', ')}) ORDER BY given.name
  ON CONFLICT (name) DO UPDATE SET replaced = usage_records.row, row = excluded.row,
    ${NAMES.filter((name) => !KEPT_ON_REPLACEMENT.includes(name))
      .map((name) => `${name} = excluded.${name}`)
      .join(', ')}
    WHERE usage_records.estimated AND NOT excluded.estimated
  RETURNING row, replaced`;

interface UsageWriterOptions {
  pool: PostgresPool;
  /** Called after the transaction with each record that is new. An exact record that replaces an estimate is not new. */
  onStored(rows: readonly UsageRow[]): void;
}

interface Waiting {
  readonly rows: readonly UsageRow[];
  readonly done: PromiseWithResolvers<void>;
}

export class UsageWriter {
  readonly #options: UsageWriterOptions;
  /** Bounded by WAITING_MAX_ROWS. */
  #waiting: Waiting[] = [];
  #waitingRows = 0;
  #isWriting = false;

  constructor(options: UsageWriterOptions) {
    this.#options = options;
  }

  /** Resolves when the rows are stored. Idempotent; an exact row replaces an estimate. Rejects if they may not be. */
  add(rows: readonly UsageRow[]): Promise<void> {
    if (rows.length === 0) return Promise.resolve();
    if (this.#waitingRows > 0 && this.#waitingRows + rows.length > WAITING_MAX_ROWS)
      return Promise.reject(Object.assign(new Error('too many usage records wait for PostgreSQL'), OVERLOADED));
    const parts = Array.from({ length: Math.ceil(rows.length / ROWS_PER_TRANSACTION) }, (_, at) => {
      const part = rows.slice(at * ROWS_PER_TRANSACTION, (at + 1) * ROWS_PER_TRANSACTION);
      const done = Promise.withResolvers<void>();
      this.#waiting.push({ rows: part.map(storableRow), done });
      return done.promise;
    });
    this.#waitingRows += rows.length;
    if (!this.#isWriting) neverRejects(this.#write());
    return Promise.all(parts).then(() => {});
  }

  /** Stores what waits. Never rejects: each caller learns its own result. */
  async #write(): Promise<void> {
    this.#isWriting = true;
    while (this.#waiting.length > 0) {
      const batch = this.#next();
      try {
        await this.#store(batch);
        for (const { done } of batch) done.resolve();
      } catch (error) {
        await this.#refuse(batch, error);
      }
    }
    this.#isWriting = false;
  }

  #next(): Waiting[] {
    let rows = 0;
    const end = this.#waiting.findIndex((one, at) => {
      rows += one.rows.length;
      return at > 0 && rows > ROWS_PER_TRANSACTION;
    });
    const batch = this.#waiting.splice(0, end === -1 ? this.#waiting.length : end);
    this.#waitingRows -= batch.reduce((sum, one) => sum + one.rows.length, 0);
    return batch;
  }

  /** If PostgreSQL refuses a value, only the caller with that value fails. */
  async #refuse(batch: readonly Waiting[], error: unknown): Promise<void> {
    if (batch.length === 1 || !isDataError(error)) {
      for (const { done } of batch) done.reject(error);
      return;
    }
    for (const one of batch) await this.#store([one]).then(one.done.resolve, one.done.reject);
  }

  async #store(batch: readonly Waiting[]): Promise<void> {
    // Computed before the transaction begins, because PostgreSQL ends one that is idle.
    const records = listsOf(bestOfEach(batch.flatMap((one) => one.rows)));
    const fresh = await this.#options.pool.withConnection(async (connection) => {
      await connection.query(BEGIN);
      const changes = await storeRecords(connection, records);
      await storeTotals(connection, changes);
      await connection.query('COMMIT');
      return changes.filter(({ replaced }) => replaced === undefined).map(({ row }) => row);
    });
    this.#options.onStored(fresh);
  }
}

/** Callers know this member from Cloudflare's errors. */
const OVERLOADED = { overloaded: true };

/** One row of each name: an exact one if there is one, otherwise the first. A statement may not change a row twice. */
function bestOfEach(rows: readonly UsageRow[]): UsageRow[] {
  const best = new Map<string, UsageRow>();
  for (const row of rows) {
    const known = best.get(recordName(row));
    if (known === undefined || (known.estimated && !row.estimated)) best.set(recordName(row), row);
  }
  return [...best.values()];
}

interface Change {
  row: UsageRow;
  replaced: UsageRow | undefined;
}

/** One list of values for each column. */
function listsOf(rows: readonly UsageRow[]): unknown[][] {
  const values = rows.map(recordValues);
  return Object.keys(RECORD_COLUMNS).map((_, at) => values.map((value) => value[at] ?? null));
}

async function storeRecords(connection: Connection, records: readonly unknown[][]): Promise<Change[]> {
  const stored = await connection.query(STORE, records);
  return stored.rows.map(([row, replaced]) => ({
    row: JSON.parse(String(row)) as UsageRow,
    replaced: replaced === null ? undefined : (JSON.parse(String(replaced)) as UsageRow),
  }));
}

async function storeTotals(connection: Connection, changes: readonly Change[]): Promise<void> {
  const totals = new Map<string, UsageTotal>();
  const count = (row: UsageRow, sign: 1 | -1) => {
    const total = usageTotalOf(row, sign);
    const known = totals.get(totalKey(total));
    if (known === undefined) totals.set(totalKey(total), total);
    else addTotal(known, total);
  };
  for (const { row, replaced } of changes) {
    if (replaced !== undefined) count(replaced, -1);
    count(row, 1);
  }
  await addTotals(connection, totals);
}
