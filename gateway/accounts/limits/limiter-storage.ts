import type { Sql } from '../../platform/object-context.ts';
import type { MeterTime } from './limit-meter.ts';
import type { Limiter, LimiterStore } from './limiter.ts';
import type { MonthLedger } from './month-amounts.ts';

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS minutes (id TEXT PRIMARY KEY, state TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS estimators (id TEXT PRIMARY KEY, state TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS holds (name TEXT PRIMARY KEY, saved_at INTEGER NOT NULL, state TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS processes (id TEXT PRIMARY KEY);
  CREATE TABLE IF NOT EXISTS months (id TEXT NOT NULL, month TEXT NOT NULL, used INTEGER NOT NULL, PRIMARY KEY (id, month));
`;

/** The stored state of a limiter. The sum of a month is written whenever it changes; `save` writes everything else. */
export class LimiterStorage implements LimiterStore {
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
    sql.exec(SCHEMA);
  }

  minute(id: string): unknown {
    return this.#state('minutes', id);
  }

  estimator(id: string): unknown {
    return this.#state('estimators', id);
  }

  ledger(id: string): MonthLedger {
    return {
      used: (month) => {
        const query = 'SELECT used FROM months WHERE id = ? AND month = ?';
        return this.#sql.exec<{ used: number }>(query, id, month).toArray()[0]?.used ?? 0;
      },
      write: (month, used) => {
        this.#sql.exec('INSERT OR REPLACE INTO months (id, month, used) VALUES (?, ?, ?)', id, month, used);
      },
    };
  }

  requests(): { name: string; state: unknown; savedMsAgo: number }[] {
    const query = 'SELECT name, saved_at, state FROM holds';
    const rows = this.#sql.exec<{ name: string; saved_at: number; state: string }>(query).toArray();
    return rows.map(({ name, saved_at, state }) => ({
      name,
      state: JSON.parse(state),
      savedMsAgo: Math.max(0, Date.now() - saved_at),
    }));
  }

  /**
   * True if the saved requests ran in a process that has ended. `id`: the id of the current process; undefined on
   * Workers, where requests run in many processes, so the result is false.
   */
  isOtherProcess(id: string | undefined): boolean {
    if (id === undefined) return false;
    const [known] = this.#sql.exec<{ id: string }>('SELECT id FROM processes').toArray();
    if (known?.id === id) return false;
    this.#sql.exec('DELETE FROM processes');
    this.#sql.exec('INSERT INTO processes (id) VALUES (?)', id);
    return true;
  }

  save(limiter: Limiter, now: MeterTime): void {
    for (const { id, minute, estimator } of limiter.states(now)) {
      this.#sql.exec('INSERT OR REPLACE INTO estimators (id, state) VALUES (?, ?)', id, JSON.stringify(estimator));
      if (minute === undefined) this.#sql.exec('DELETE FROM minutes WHERE id = ?', id);
      else this.#sql.exec('INSERT OR REPLACE INTO minutes (id, state) VALUES (?, ?)', id, JSON.stringify(minute));
    }
    const insert = 'INSERT OR REPLACE INTO holds (name, saved_at, state) VALUES (?, ?, ?)';
    for (const { name, state } of limiter.changedRequests(now)) {
      if (state === undefined) this.#sql.exec('DELETE FROM holds WHERE name = ?', name);
      else this.#sql.exec(insert, name, Date.now(), JSON.stringify(state));
    }
  }

  #state(table: 'minutes' | 'estimators', id: string): unknown {
    const [row] = this.#sql.exec<{ state: string }>(`SELECT state FROM ${table} WHERE id = ?`, id).toArray();
    return row && JSON.parse(row.state);
  }
}
