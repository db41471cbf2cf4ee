import type { ObjectStorage, Sql } from '../platform/object-context.ts';
/** Single values that outlive the object. */
export class RegistryMeta {
  readonly #sql: Sql;

  constructor({ sql }: ObjectStorage) {
    this.#sql = sql;
    sql.exec('CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)');
  }

  get(key: string): string | undefined {
    return [...this.#sql.exec<{ value: string }>('SELECT value FROM meta WHERE key = ?', key)][0]?.value;
  }

  set(key: string, value: string): void {
    this.#sql.exec('INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)', key, value);
  }
}
