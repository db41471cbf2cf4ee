/** SQLite as this host uses it. The only file that imports `node:sqlite`. */
import { existsSync, rmSync } from 'node:fs';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { storageHealth } from '../../platform/storage/health.ts';

/** Prepared statements kept per database. Each object has a few dozen; the oldest is dropped. */
const STATEMENTS_MAX = 128;
/**
 * Another process (a backup, `sqlite3`) may lock the file for a moment. The whole gateway waits, except while nothing
 * can be written anyway.
 */
const BUSY_TIMEOUT_MS = 5_000;

/** SQLITE_CORRUPT and SQLITE_NOTADB, without their extended codes. */
const DAMAGED: readonly number[] = [11, 26];
const PRIMARY_CODE = 0xff;

/** A value in a row. Blobs are ArrayBuffers, as in Durable Objects and D1. */
export type SqliteValue = ArrayBuffer | string | number | null;
export type SqliteRow = Record<string, SqliteValue>;

interface Prepared {
  statement: StatementSync;
  /** It changes nothing. */
  reads: boolean;
  /** A cursor is reading from it: another use needs its own. */
  busy: boolean;
}

/**
 * One database file. Write-ahead log, synchronous=NORMAL: committed data survives the end of the process, even `kill
 * -9`. After a power cut the file is intact, but commits since the last checkpoint may be missing.
 */
export class Database {
  readonly path: string;
  #database: DatabaseSync | undefined;
  #isFile = false;
  /** Opened while the storage could not be written: no other process can read the file. */
  #isExclusive = false;
  readonly #statements = new Map<string, Prepared>();

  readonly #readOnly: boolean;

  /**
   * Opens or creates nothing before it is needed. The first write creates a missing file. `readOnly`: never creates
   * one, and a write is an error.
   */
  constructor(path: string, { readOnly = false }: { readOnly?: boolean } = {}) {
    this.path = path;
    this.#readOnly = readOnly;
  }

  /** True if `query` changes nothing. */
  reads(query: string): boolean {
    return isRead(query);
  }

  /** Runs a statement for its rows. @throws Error of SQLite */
  rows(query: string, bindings: readonly unknown[]): SqliteRow[] {
    return this.#withFileName(() => {
      const { statement } = this.#prepare(query);
      return statement.all(...bindings.map(bindable)).map(rowOf);
    });
  }

  /** Row by row; the statement runs while it is read. */
  *iterate(query: string, bindings: readonly unknown[]): IterableIterator<SqliteRow> {
    const prepared = this.#withFileName(() => this.#prepare(query));
    prepared.busy = true;
    try {
      for (const row of prepared.statement.iterate(...bindings.map(bindable))) yield rowOf(row);
    } finally {
      prepared.busy = false;
    }
  }

  /** Rows as lists, with the column names. */
  lists(query: string, bindings: readonly unknown[]): { columns: string[]; rows: SqliteValue[][] } {
    const { statement } = this.#prepare(query);
    const columns = statement.columns().map(({ name }) => name);
    statement.setReturnArrays(true);
    try {
      const rows: unknown = statement.all(...bindings.map(bindable));
      return { columns, rows: (rows as unknown[][]).map((row) => row.map(plainValue)) };
    } finally {
      statement.setReturnArrays(false);
    }
  }

  /** Several statements without bindings or rows. */
  script(text: string): void {
    this.#withFileName(() => this.#open(isRead(text)).exec(text));
  }

  /** SQLite's counters: changes of this connection, and the last inserted row. */
  counters(): { total: number; last: number } {
    const [row] = this.rows('SELECT total_changes() AS total, last_insert_rowid() AS last', []);
    return { total: Number(row?.total ?? 0), last: Number(row?.last ?? 0) };
  }

  get size(): number {
    const [row] = this.rows('SELECT page_count * page_size AS size FROM pragma_page_count(), pragma_page_size()', []);
    return Number(row?.size ?? 0);
  }

  begin(): void {
    this.#withFileName(() => this.#open(false).exec('BEGIN IMMEDIATE'));
  }

  /** @throws Error if the disk is full or broken; then everything since `begin` is undone */
  commit(): void {
    try {
      this.#database?.exec('COMMIT');
    } catch (error) {
      this.rollback();
      throw error;
    }
  }

  rollback(): void {
    if (this.#database?.isTransaction === true) this.#database.exec('ROLLBACK');
  }

  /** Runs `work` in a transaction. */
  together<T>(work: () => T): T {
    this.begin();
    try {
      const result = work();
      this.commit();
      return result;
    } catch (error) {
      this.rollback();
      throw error;
    }
  }

  /** Closes the file; the next use opens it again. */
  close(): void {
    this.#statements.clear();
    this.#database?.close();
    this.#database = undefined;
    this.#isFile = false;
  }

  /** Closes and deletes the file. */
  remove(): void {
    this.close();
    for (const suffix of ['', '-wal', '-shm']) rmSync(`${this.path}${suffix}`, { force: true });
  }

  /** Adds the file's name to an error about damage. */
  #withFileName<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (error instanceof Error && isDamage(error))
        error.message = `${this.path} is damaged: ${error.message}. Put a backup in its place: otela-gateway restore --help`;
      throw error;
    }
  }

  #prepare(query: string): Prepared {
    const known = this.#statements.get(query);
    const reads = known?.reads ?? isRead(query);
    const database = this.#open(reads); // It may replace the connection, and with it the statements.
    const kept = this.#statements.get(query);
    if (kept !== undefined && !kept.busy) return kept;
    const prepared = { statement: database.prepare(query), reads, busy: false };
    this.#statements.set(query, prepared);
    const oldest = this.#statements.keys().next().value;
    if (this.#statements.size > STATEMENTS_MAX && oldest !== undefined) this.#statements.delete(oldest);
    return prepared;
  }

  #url(): string | URL {
    if (!this.#readOnly) return this.path;
    const url = pathToFileURL(this.path);
    url.searchParams.set('mode', 'rw'); // Not "rwc", which would create it.
    return url;
  }

  /** There is space again, and nothing is in progress: reopened, the file can be read by a backup. */
  #isToBeShared(): boolean {
    if (!this.#isExclusive || storageHealth.failure !== undefined || this.#database?.isTransaction === true)
      return false;
    return [...this.#statements.values()].every(({ busy }) => !busy);
  }

  /** Reading a missing file must not create it: an empty database in memory gives the same answers. */
  #open(toRead: boolean): DatabaseSync {
    if (this.#database !== undefined && (this.#isFile || toRead) && !this.#isToBeShared()) return this.#database;
    const isFile = this.path !== ':memory:' && (!toRead || existsSync(this.path));
    this.close();
    const failing = storageHealth.failure !== undefined;
    const database = new DatabaseSync(isFile ? this.#url() : ':memory:', { timeout: failing ? 0 : BUSY_TIMEOUT_MS });
    this.#isExclusive = isFile && failing;
    try {
      // Opened with write permission, it removes its log when it is closed; many hours are read once.
      if (this.#readOnly) database.exec('PRAGMA query_only = ON');
      // Without exclusive locking SQLite creates a shared-memory file beside this one, for which a full disk has no
      // space.
      if (this.#isExclusive) database.exec('PRAGMA locking_mode = EXCLUSIVE');
      if (isFile && !this.#readOnly)
        database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON');
    } catch (error) {
      database.close(); // Otherwise it keeps its lock, and the next opening stops this process for BUSY_TIMEOUT_MS.
      throw error;
    }
    this.#database = database;
    this.#isFile = isFile || this.path === ':memory:';
    return database;
  }
}

/** True if SQLite says that the file's content is damaged, and not that its disk or permissions are at fault. */
export function isDamage(error: unknown): boolean {
  return error instanceof Error && 'errcode' in error && DAMAGED.includes(Number(error.errcode) & PRIMARY_CODE);
}

function isRead(query: string): boolean {
  const text = query.trimStart();
  if (/^(?:SELECT|EXPLAIN|VALUES)\b/i.test(text)) return true;
  return /^WITH\b/i.test(text) && !/\b(?:INSERT|UPDATE|DELETE|REPLACE)\b/i.test(text);
}

function bindable(value: unknown): string | number | bigint | Uint8Array | null {
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint')
    return value;
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (value instanceof Uint8Array) return value;
  throw new TypeError(`SQLite takes no ${value === undefined ? 'undefined' : typeof value}`);
}

function plainValue(value: unknown): SqliteValue {
  if (value instanceof Uint8Array) return new Uint8Array(value).buffer;
  return value as SqliteValue;
}

function rowOf(row: Record<string, unknown>): SqliteRow {
  for (const name in row) if (row[name] instanceof Uint8Array) row[name] = plainValue(row[name]);
  return row as SqliteRow;
}
