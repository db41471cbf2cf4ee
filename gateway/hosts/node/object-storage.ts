import { deserialize, serialize } from 'node:v8';
import type { KeyValue, ObjectStorage, Sql, SqlCursor, SqlValue } from '../../platform/object-context.ts';
import type { ObjectAlarm } from './object-alarms.ts';
import type { Gate } from './output-gate.ts';
import type { Database } from './sqlite.ts';

/** Rows of one statement. A write ran when the cursor was created; a read runs while the cursor is used. */
class Cursor<Row extends Record<string, SqlValue>> implements SqlCursor<Row> {
  readonly #all: () => Row[];
  readonly #each: () => Iterator<Row>;

  constructor(all: () => Row[], each: () => Iterator<Row>) {
    this.#all = all;
    this.#each = each;
  }

  toArray(): Row[] {
    return this.#all();
  }

  one(): Row {
    const [row, ...more] = this.#all();
    if (row === undefined || more.length > 0) throw new Error('the query returned no row, or several');
    return row;
  }

  [Symbol.iterator](): Iterator<Row> {
    return this.#each();
  }
}

/** Read-only access to an object's file. @throws Error of SQLite for a statement that writes */
export class ReadSql implements Sql {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  exec<Row extends Record<string, SqlValue>>(query: string, ...bindings: unknown[]): SqlCursor<Row> {
    const database = this.#database;
    return new Cursor(
      () => database.rows(query, bindings) as Row[],
      () => database.iterate(query, bindings) as Iterator<Row>,
    );
  }

  get databaseSize(): number {
    return this.#database.size;
  }
}

class ObjectSql implements Sql {
  readonly #database: Database;
  readonly #gate: Gate;
  readonly #reads: ReadSql;

  constructor(database: Database, gate: Gate) {
    this.#database = database;
    this.#gate = gate;
    this.#reads = new ReadSql(database);
  }

  exec<Row extends Record<string, SqlValue>>(query: string, ...bindings: unknown[]): SqlCursor<Row> {
    const database = this.#database;
    if (database.reads(query)) return this.#reads.exec<Row>(query, ...bindings);
    let rows: Row[] = [];
    if (database.defers && bindings.length === 0 && definesOnly(query) && this.#gate.settled) {
      database.define(query);
      return new Cursor(
        () => rows,
        () => rows.values(),
      );
    }
    this.#gate.write();
    if (bindings.length === 0 && !/\bRETURNING\b/i.test(query)) database.script(query);
    else rows = database.rows(query, bindings) as Row[];
    return new Cursor(
      () => rows,
      () => rows.values(),
    );
  }

  execEach(query: string, rows: readonly (readonly SqlValue[])[]): void {
    if (rows.length === 0) return;
    this.#gate.write();
    this.#database.each(query, rows);
  }

  get databaseSize(): number {
    return this.#database.size;
  }
}

/** True if each statement of the script creates or changes a table or an index, and none writes a row. */
function definesOnly(script: string): boolean {
  return script
    .split(';')
    .every((statement) => /^\s*(?:$|CREATE (?:TABLE|INDEX) IF NOT EXISTS\b|ALTER TABLE\b)/i.test(statement));
}

const KEYS = 'CREATE TABLE IF NOT EXISTS _keys (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID';

class Keys implements KeyValue {
  readonly #database: Database;
  readonly #gate: Gate;
  #exists: boolean | undefined;

  constructor(database: Database, gate: Gate) {
    this.#database = database;
    this.#gate = gate;
  }

  get<Value>(key: string): Value | undefined {
    if (!this.#isThere()) return undefined;
    const [row] = this.#database.rows('SELECT value FROM _keys WHERE key = ?', [key]);
    return row === undefined ? undefined : (restored(row.value) as Value);
  }

  put<Value>(key: string, value: Value): void {
    this.#create();
    this.#database.rows('INSERT OR REPLACE INTO _keys (key, value) VALUES (?, ?)', [key, serialize(value)]);
  }

  delete(key: string): boolean {
    if (!this.#isThere()) return false;
    this.#gate.write();
    return this.#database.rows('DELETE FROM _keys WHERE key = ? RETURNING 1 AS one', [key]).length > 0;
  }

  *list<Value>({ prefix }: { prefix: string }): Iterable<[string, Value]> {
    if (!this.#isThere()) return;
    const query = 'SELECT key, value FROM _keys WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key';
    for (const { key, value } of this.#database.rows(query, [prefix])) yield [String(key), restored(value) as Value];
  }

  /** Called when all rows of the object were deleted. */
  forget(): void {
    this.#exists = undefined;
  }

  #isThere(): boolean {
    this.#exists ??= this.#database.rows("SELECT 1 FROM sqlite_master WHERE name = '_keys'", []).length > 0;
    return this.#exists;
  }

  #create(): void {
    this.#gate.write();
    if (this.#isThere()) return;
    this.#database.script(KEYS);
    this.#exists = true;
  }
}

function restored(bytes: SqlValue | undefined): unknown {
  return bytes instanceof ArrayBuffer ? deserialize(new Uint8Array(bytes)) : undefined;
}

/** One object's file and its alarm. */
export class NodeStorage implements ObjectStorage {
  readonly sql: Sql;
  readonly kv: Keys;
  readonly #database: Database;
  readonly #gate: Gate;
  readonly #alarm: ObjectAlarm;

  constructor(database: Database, gate: Gate, alarm: ObjectAlarm) {
    this.#database = database;
    this.#gate = gate;
    this.#alarm = alarm;
    this.sql = new ObjectSql(database, gate);
    this.kv = new Keys(database, gate);
  }

  async getAlarm(): Promise<number | null> {
    return this.#alarm.get();
  }

  /**
   * Stores the alarm immediately, in a file of the host, before the other writes of the turn are committed. So after a
   * crash there may be an alarm too many, which the object tolerates, but no alarm is missing.
   */
  async setAlarm(at: number): Promise<void> {
    this.#alarm.set(at);
    this.#gate.noted();
  }

  async deleteAll(): Promise<void> {
    this.#gate.commit();
    this.#database.remove();
    this.kv.forget();
    this.#alarm.delete();
    this.#gate.noted();
  }
}
