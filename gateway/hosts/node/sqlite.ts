/** A wrapper of SQLite for this host. The only file that imports `node:sqlite`. */
import { existsSync, rmSync } from 'node:fs';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { storageHealth } from '../../platform/storage/storage-health.ts';

/** Maximum prepared statements per database. Each object has a few dozen; beyond the maximum the oldest is dropped. */
const STATEMENTS_MAX = 128;
/**
 * Maximum wait for a lock: another process (a backup, `sqlite3`) may lock the file for a moment. The whole gateway
 * waits meanwhile, except while the disk is full.
 */
const BUSY_TIMEOUT_MS = 5_000;

/** Result codes SQLITE_CORRUPT and SQLITE_NOTADB, without their extended codes. */
const DAMAGED: readonly number[] = [11, 26];
const PRIMARY_CODE = 0xff;

/** A value in a row. Blobs are ArrayBuffers, as in Durable Objects and D1. */
export type SqliteValue = ArrayBuffer | string | number | null;
export type SqliteRow = Record<string, SqliteValue>;

interface Prepared {
  statement: StatementSync;
  /** True if the statement changes nothing. */
  reads: boolean;
  /** True while a cursor reads from the statement. Meanwhile, the same query needs a second prepared statement. */
  busy: boolean;
}

interface OpenDatabase {
  database: DatabaseSync;
  /** Prepared statements by their text. */
  statements: Map<string, Prepared>;
}

/** Maximum schemas with an empty database in memory: a few for each class of objects. */
const EMPTY_MAX = 64;
const emptyDatabases = new Map<string, OpenDatabase>();

/** Returns an empty database in memory with these tables. All missing files with the same tables share it. */
function emptyDatabase(schema: string): OpenDatabase {
  const known = emptyDatabases.get(schema);
  if (known !== undefined) return known;
  const made = { database: new DatabaseSync(':memory:'), statements: new Map<string, Prepared>() };
  if (schema !== '') made.database.exec(schema);
  made.database.exec('PRAGMA query_only = ON');
  if (emptyDatabases.size < EMPTY_MAX) emptyDatabases.set(schema, made);
  return made;
}

/**
 * One database file. Write-ahead log with synchronous=NORMAL: committed data survives the end of the process, even
 * `kill -9`. After a power cut the file is intact, but commits since the last checkpoint may be missing.
 */
export class Database {
  readonly path: string;
  #database: DatabaseSync | undefined;
  #isFile = false;
  /** Statements that create the tables of a missing file. They run when the file is created. */
  #schema = '';
  #usedAt = 0;
  /** True if the file was opened while the storage could not be written. Then no other process can read it. */
  #isExclusive = false;
  #hasEnded = false;
  #statements = new Map<string, Prepared>();

  /** False if `define` must not be called, because each statement must run when it is given. */
  readonly defers: boolean = true;
  readonly #readOnly: boolean;

  /**
   * Does not open or create the file before it is needed. The first write creates a missing file. `readOnly`: the file
   * is never created, and a write is an error.
   */
  constructor(path: string, { readOnly = false }: { readOnly?: boolean } = {}) {
    this.path = path;
    this.#readOnly = readOnly;
  }

  /** When the open file was last used, in milliseconds since 1970; undefined: the file is not open. */
  get usedAt(): number | undefined {
    return this.#isFile ? this.#usedAt : undefined;
  }

  /**
   * Runs statements that create or change tables and write no row. If the file is missing, they run when the first row
   * is written, so that an object without rows needs no file.
   */
  define(schema: string): void {
    if (this.#isFile || this.path === ':memory:' || existsSync(this.path)) return this.script(schema);
    this.close();
    this.#schema += `${schema};`;
  }

  /** True if `query` changes nothing. */
  reads(query: string): boolean {
    return isRead(query);
  }

  /** Runs a statement and returns all rows. @throws Error of SQLite */
  rows(query: string, bindings: readonly unknown[]): SqliteRow[] {
    return this.#withFileName(() => {
      const { statement } = this.#prepare(query);
      return statement.all(...bindings.map(bindable)).map(rowOf);
    });
  }

  /**
   * Runs a writing statement once for each list of bindings. The caller has begun a transaction.
   * @throws Error of SQLite; then none of the statements had an effect
   */
  each(query: string, lists: readonly (readonly SqliteValue[])[]): void {
    this.#withFileName(() => {
      const { statement } = this.#prepare(query);
      const [first, ...others] = lists;
      if (first !== undefined && others.length === 0) return void statement.run(...first.map(bindable));
      this.#database?.exec('SAVEPOINT each_list');
      try {
        for (const bindings of lists) statement.run(...bindings.map(bindable));
      } catch (error) {
        // A full disk may have ended the whole transaction.
        if (this.#database?.isTransaction === true) this.#database.exec('ROLLBACK TO each_list; RELEASE each_list');
        throw error;
      }
      this.#database?.exec('RELEASE each_list');
    });
  }

  /** Yields one row after another; the statement runs while it is read. */
  *iterate(query: string, bindings: readonly unknown[]): IterableIterator<SqliteRow> {
    const prepared = this.#withFileName(() => this.#prepare(query));
    prepared.busy = true;
    try {
      for (const row of prepared.statement.iterate(...bindings.map(bindable))) yield rowOf(row);
    } finally {
      prepared.busy = false;
    }
  }

  /** Returns rows as lists, with the column names. */
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

  /** Runs several statements without bindings or rows. */
  script(text: string): void {
    this.#withFileName(() => this.#open(isRead(text)).exec(text));
  }

  /** Returns SQLite's counters: changes of this connection, and the last inserted row. */
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
    if (this.#isFile) this.#database?.close();
    this.#statements = new Map();
    this.#database = undefined;
    this.#isFile = false;
  }

  /**
   * Closes the file after the end of its object. If unfinished work of the object uses the file afterwards, it takes no
   * exclusive lock: no later use would release it, and the next instance of the object would wait for it forever.
   */
  end(): void {
    this.#hasEnded = true;
    this.close();
  }

  /** Closes and deletes the file. */
  remove(): void {
    this.close();
    this.#schema = '';
    this.#removeFiles();
  }

  #removeFiles(): void {
    for (const suffix of ['', '-wal', '-shm']) rmSync(`${this.path}${suffix}`, { force: true });
  }

  /** Adds the file's name to errors about damage. */
  #withFileName<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (error instanceof Error && isDamage(error))
        error.message = `${this.path} is damaged: ${error.message}. Restore a backup: otela-gateway restore --help`;
      throw error;
    }
  }

  #prepare(query: string): Prepared {
    const known = this.#statements.get(query);
    const reads = known?.reads ?? isRead(query);
    const database = this.#open(reads); // opening may replace the connection, and with it the statements
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
    url.searchParams.set('mode', 'rw'); // mode "rwc" would create the file
    return url;
  }

  /**
   * True if the file is open exclusively although storage can be written again, and no statement or transaction is in
   * progress. Then it is reopened, so that a backup can read it.
   */
  #isToBeShared(): boolean {
    if (!this.#isExclusive || storageHealth.failure !== undefined || this.#database?.isTransaction === true)
      return false;
    return [...this.#statements.values()].every(({ busy }) => !busy);
  }

  /** Reading a missing file must not create it. An empty database in memory gives the same answers. */
  #open(toRead: boolean): DatabaseSync {
    this.#usedAt = Date.now();
    if (this.#database !== undefined && (this.#isFile || toRead) && !this.#isToBeShared()) return this.#database;
    const exists = this.path !== ':memory:' && existsSync(this.path);
    const isFile = this.path !== ':memory:' && (!toRead || exists);
    this.close();
    if (!isFile && this.path !== ':memory:') {
      const empty = emptyDatabase(this.#schema);
      this.#statements = empty.statements;
      this.#database = empty.database;
      return empty.database;
    }
    const failing = storageHealth.failure !== undefined;
    const database = new DatabaseSync(isFile ? this.#url() : ':memory:', { timeout: failing ? 0 : BUSY_TIMEOUT_MS });
    this.#isExclusive = isFile && failing && !this.#hasEnded;
    try {
      // The file is opened with write permission, so that SQLite removes its log on closing. Otherwise each hour that a
      // report reads would leave a log.
      if (this.#readOnly) database.exec('PRAGMA query_only = ON');
      // Without exclusive locking, SQLite creates a shared-memory file beside the database, for which a full disk has
      // no space.
      if (this.#isExclusive) database.exec('PRAGMA locking_mode = EXCLUSIVE');
      if (isFile && !this.#readOnly)
        database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON');
      if (!exists && this.#schema !== '') database.exec(`BEGIN; ${this.#schema} COMMIT`);
    } catch (error) {
      database.close(); // an open connection would keep its lock, and the next opening would wait for BUSY_TIMEOUT_MS
      if (isFile && !exists && this.#schema !== '') this.#removeFiles(); // a file without tables would not get them later
      throw error;
    }
    this.#database = database;
    this.#isFile = isFile || this.path === ':memory:';
    return database;
  }
}

/** True if SQLite reports that the file's content is damaged, and not that the disk or permissions are at fault. */
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
  throw new TypeError(`SQLite does not accept ${value === undefined ? 'undefined' : typeof value}`);
}

function plainValue(value: unknown): SqliteValue {
  if (value instanceof Uint8Array) return new Uint8Array(value).buffer;
  return value as SqliteValue;
}

function rowOf(row: Record<string, unknown>): SqliteRow {
  for (const name in row) if (row[name] instanceof Uint8Array) row[name] = plainValue(row[name]);
  return row as SqliteRow;
}
