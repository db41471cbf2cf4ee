import type { Clock, KeyValue, ObjectStorage, Sql, SqlCursor, SqlValue } from '../object-context.ts';
import { execEach } from './exec-each.ts';
import { RETRY_MS, type StorageHealth } from './storage-health.ts';

/**
 * Maximum keys of one object that wait to be written. Most objects have a few keys; the object that sums metrics has
 * some tens.
 */
const KEYS_MAX = 1_000;

/**
 * Matches statements that write. CREATE is not matched: objects use `IF NOT EXISTS`, so it writes nothing if the table
 * or index exists.
 */
const WRITES = /\b(INSERT|UPDATE|DELETE|REPLACE)\b/i;

/** Value that marks a key that must be deleted. */
const DELETED = Symbol('deleted');

/**
 * An object's storage that keeps working while the disk fails. While it cannot be written, keys and the alarm are kept
 * in memory and written later, and a statement that writes throws StorageFailingError before it reaches the database.
 * Otherwise some hosts would end the object after a failed write, and with it the socket of its node. Reads continue.
 */
export class ResilientStorage implements ObjectStorage {
  readonly sql: Sql;
  readonly kv: KeyValue;
  readonly #inner: ObjectStorage;
  readonly #health: StorageHealth;
  readonly #clock: Clock;
  readonly #runAlarm: () => void;
  readonly #keys = new Map<string, unknown>();
  /** An alarm that could not be stored. It fires only while the object is in memory. */
  #alarm: { at: number; cancel: () => void } | undefined;
  #retry: (() => void) | undefined;

  /** @param runAlarm runs the host's handler of an alarm */
  constructor(inner: ObjectStorage, health: StorageHealth, clock: Clock, runAlarm: () => void) {
    this.#inner = inner;
    this.#health = health;
    this.#clock = clock;
    this.#runAlarm = runAlarm;
    this.sql = this.#sql();
    this.kv = this.#kv();
  }

  /** Runs a write. @throws StorageFailingError, or the error of the database */
  #write<T>(run: () => T): T {
    const health = this.#health;
    if (health.failure !== undefined) health.require(this.#clock.now());
    try {
      const result = run();
      if (health.failure !== undefined) health.wrote(this.#clock.now());
      return result;
    } catch (error) {
      health.failed(error, this.#clock.now());
      throw error;
    }
  }

  /** Like #write, but returns false if the storage failed. */
  #tryWrite(run: () => void): boolean {
    try {
      this.#write(run);
      return true;
    } catch (error) {
      if (this.#health.failed(error, this.#clock.now())) return false;
      throw error;
    }
  }

  #sql(): Sql {
    const inner = this.#inner.sql;
    const exec = <Row extends Record<string, SqlValue>>(query: string, ...bindings: unknown[]): SqlCursor<Row> => {
      if (this.#health.failure !== undefined && !WRITES.test(query)) return inner.exec<Row>(query, ...bindings);
      return this.#write(() => inner.exec<Row>(query, ...bindings));
    };
    return {
      exec,
      execEach: (query, rows) => this.#write(() => execEach(inner, query, rows)),
      get databaseSize() {
        return inner.databaseSize;
      },
    };
  }

  #kv(): KeyValue {
    const { kv } = this.#inner;
    const keys = this.#keys;
    return {
      get: <Value>(key: string) => {
        if (!keys.has(key)) return kv.get<Value>(key);
        const value = keys.get(key);
        return value === DELETED ? undefined : (value as Value);
      },
      put: (key, value) => this.#putDeferred(key, value, () => kv.put(key, value)),
      delete: (key) => {
        const known = keys.has(key) ? keys.get(key) !== DELETED : kv.get(key) !== undefined;
        this.#putDeferred(key, DELETED, () => kv.delete(key));
        return known;
      },
      list: <Value>({ prefix }: { prefix: string }) => {
        const all = new Map<string, Value>(kv.list<Value>({ prefix }));
        for (const [key, value] of keys) {
          if (!key.startsWith(prefix)) continue;
          if (value === DELETED) all.delete(key);
          else all.set(key, value as Value);
        }
        return all;
      },
    };
  }

  #putDeferred(key: string, value: unknown, put: () => void): void {
    if (this.#tryWrite(put)) {
      this.#keys.delete(key);
      return;
    }
    // The value is copied, as the host would have done at this point, because the caller may change it.
    this.#keys.set(key, value === DELETED ? DELETED : structuredClone(value));
    if (this.#keys.size > KEYS_MAX) throw new Error(`more than ${KEYS_MAX} keys wait for the storage`);
    this.#retryLater();
  }

  async getAlarm(): Promise<number | null> {
    return this.#alarm?.at ?? this.#inner.getAlarm();
  }

  async setAlarm(at: number): Promise<void> {
    this.#alarm?.cancel();
    this.#alarm = undefined;
    try {
      await this.#write(() => this.#inner.setAlarm(at));
    } catch (error) {
      if (!this.#health.failed(error, this.#clock.now())) throw error;
      this.#setAlarmAt(at);
    }
  }

  #setAlarmAt(at: number): void {
    const cancel = this.#clock.after(Math.max(0, at - this.#clock.now()), () => {
      this.#alarm = undefined;
      this.#runAlarm();
    });
    this.#alarm = { at, cancel };
    this.#retryLater();
  }

  async deleteAll(): Promise<void> {
    this.#health.require(this.#clock.now());
    this.#keys.clear();
    this.#alarm?.cancel();
    this.#alarm = undefined;
    await this.#inner.deleteAll();
  }

  #retryLater(): void {
    this.#retry ??= this.#clock.after(RETRY_MS, () => {
      this.#retry = undefined;
      this.#catchUp();
    });
  }

  #catchUp(): void {
    for (const [key, value] of this.#keys) {
      const put = () => (value === DELETED ? void this.#inner.kv.delete(key) : this.#inner.kv.put(key, value));
      if (!this.#tryWrite(put)) return this.#retryLater();
      this.#keys.delete(key);
    }
    const at = this.#alarm?.at;
    if (at !== undefined) this.setAlarm(at).catch(() => this.#retryLater());
  }
}
