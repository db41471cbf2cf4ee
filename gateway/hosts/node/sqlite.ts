/** SQLite as this host uses it. The only file that knows `node:sqlite`. */
import { existsSync, rmSync } from 'node:fs';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { storageHealth } from '../../storage/health.ts';

/** Statements that one database keeps prepared. Rooms have a few dozen texts each; the oldest makes room. */
const STATEMENTS_MAX = 128;
/** Another process (a backup, `sqlite3`) may hold the file for a moment. The whole gateway waits: not while nothing can be written anyway. */
const BUSY_TIMEOUT_MS = 5_000;

/** SQLITE_CORRUPT and SQLITE_NOTADB, without what extends them. */
const DAMAGED: readonly number[] = [11, 26];
const PRIMARY_CODE = 0xff;

/** A value in a row. Blobs are ArrayBuffers, as in Durable Objects and D1. */
export type Value = ArrayBuffer | string | number | null;
export type Row = Record<string, Value>;

interface Prepared {
  statement: StatementSync;
  /** It changes nothing. */
  reads: boolean;
  /** A cursor steps through it: another use needs its own. */
  busy: boolean;
}

/**
 * One file. Write-ahead log, synchronous=NORMAL: what is committed survives the end of the process, `kill -9` included. After a power
 * cut the file is whole, but the commits since the last checkpoint may be missing.
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
   * Nothing is opened, or made, before it is needed. A file that does not exist is made by the first write; `readOnly`: never, and a write
   * is an error.
   */
  constructor(path: string, { readOnly = false }: { readOnly?: boolean } = {}) {
    this.path = path;
    this.#readOnly = readOnly;
  }

  /** Whether `query` changes nothing. */
  reads(query: string): boolean {
    return isRead(query);
  }

  /** Runs a statement for its rows. @throws Error of SQLite */
  rows(query: string, bindings: readonly unknown[]): Row[] {
    return this.#named(() => {
      const { statement } = this.#prepare(query);
      return statement.all(...bindings.map(bindable)).map(rowOf);
    });
  }

  /** Row after row; the statement runs as it is read. */
  *iterate(query: string, bindings: readonly unknown[]): IterableIterator<Row> {
    const prepared = this.#named(() => this.#prepare(query));
    prepared.busy = true;
    try {
      for (const row of prepared.statement.iterate(...bindings.map(bindable))) yield rowOf(row);
    } finally {
      prepared.busy = false;
    }
  }

  /** Rows as lists, with the names of their columns. */
  lists(query: string, bindings: readonly unknown[]): { columns: string[]; rows: Value[][] } {
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
    this.#named(() => this.#open(isRead(text)).exec(text));
  }

  /** As SQLite counts: of this connection, and the last row that it inserted. */
  counters(): { total: number; last: number } {
    const [row] = this.rows('SELECT total_changes() AS total, last_insert_rowid() AS last', []);
    return { total: Number(row?.total ?? 0), last: Number(row?.last ?? 0) };
  }

  get size(): number {
    const [row] = this.rows('SELECT page_count * page_size AS size FROM pragma_page_count(), pragma_page_size()', []);
    return Number(row?.size ?? 0);
  }

  begin(): void {
    this.#named(() => this.#open(false).exec('BEGIN IMMEDIATE'));
  }

  /** @throws Error where the disk is full or broken; what was written since `begin` is undone then */
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

  /** An error that says the file is damaged names the file. */
  #named<T>(work: () => T): T {
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
    const database = this.#open(reads); // may replace the connection, and with it the statements
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
    url.searchParams.set('mode', 'rw'); // and not: make it
    return url;
  }

  /** There is room again, and nothing is under way: opened anew, the file can be read by a backup. */
  #isToBeShared(): boolean {
    if (!this.#isExclusive || storageHealth.failure !== undefined || this.#database?.isTransaction === true)
      return false;
    return [...this.#statements.values()].every(({ busy }) => !busy);
  }

  /** Reading what does not exist makes no file: an empty database in memory gives the same answers. */
  #open(toRead: boolean): DatabaseSync {
    if (this.#database !== undefined && (this.#isFile || toRead) && !this.#isToBeShared()) return this.#database;
    const isFile = this.path !== ':memory:' && (!toRead || existsSync(this.path));
    this.close();
    const failing = storageHealth.failure !== undefined;
    const database = new DatabaseSync(isFile ? this.#url() : ':memory:', { timeout: failing ? 0 : BUSY_TIMEOUT_MS });
    this.#isExclusive = isFile && failing;
    try {
      // Opened with the right to write, it takes its log away again when it is closed: many hours are read once.
      if (this.#readOnly) database.exec('PRAGMA query_only = ON');
      // Without exclusive locking SQLite makes a file of shared memory beside this one, for which a full disk has no room.
      if (this.#isExclusive) database.exec('PRAGMA locking_mode = EXCLUSIVE');
      if (isFile && !this.#readOnly)
        database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON');
    } catch (error) {
      database.close(); // or it keeps its lock, and the next opening stops this process for BUSY_TIMEOUT_MS
      throw error;
    }
    this.#database = database;
    this.#isFile = isFile || this.path === ':memory:';
    return database;
  }
}

/** SQLite says that the file's content is at fault, and not its disk or rights. */
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

function plainValue(value: unknown): Value {
  if (value instanceof Uint8Array) return new Uint8Array(value).buffer;
  return value as Value;
}

function rowOf(row: Record<string, unknown>): Row {
  for (const name in row) if (row[name] instanceof Uint8Array) row[name] = plainValue(row[name]);
  return row as Row;
}
