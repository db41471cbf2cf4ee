import { TIMER_MAX_MS } from '../../../shared/text/duration.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { backoffMs } from '../../../shared/timing/backoff.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { RETRY_MS, storageHealth, writeIfPossible } from '../../platform/storage/storage-health.ts';
import type { Database, SqliteRow } from './sqlite.ts';

/** An alarm that failed is retried after `minMs`. The wait doubles after each further failure, up to `maxMs`. */
const BACKOFF = { minMs: 2_000, maxMs: 10 * 60_000 };
/** Maximum handlers that run concurrently. */
const CONCURRENT_MAX = 32;

/** Runs the alarm of one object; rejects if it failed. */
type RunAlarm = (className: string, name: string) => Promise<void>;

/** The alarm of one object, as the object sees it. */
export interface ObjectAlarm {
  /** Time of the alarm; milliseconds since the epoch. Null: no alarm is set, or its handler is running. */
  get(): number | null;
  set(at: number): void;
  delete(): void;
}

interface RunningAlarm {
  /** True if the running handler set another alarm or deleted its alarm. */
  replaced: boolean;
}

/**
 * The alarms of all objects, stored in one file, because the host must know them at start without opening every object.
 * An alarm stays stored until its handler has finished, so it fires at least once.
 */
export class Alarms {
  readonly #database: Database;
  readonly #ring: RunAlarm;
  readonly #onHandled: ((className: string, name: string) => void) | undefined;
  readonly #running = new Map<string, RunningAlarm>();
  /** Consecutive failures by object. */
  readonly #failures = new Map<string, number>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #armedFor = Number.POSITIVE_INFINITY;
  #closed = false;

  /** @param onHandled called when a handler has finished and its alarm was deleted */
  constructor(database: Database, ring: RunAlarm, onHandled?: (className: string, name: string) => void) {
    this.#database = database;
    this.#ring = ring;
    this.#onHandled = onHandled;
    database.script(`CREATE TABLE IF NOT EXISTS alarms (class TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL,
      PRIMARY KEY (class, name)) WITHOUT ROWID; CREATE INDEX IF NOT EXISTS alarms_at ON alarms (at)`);
  }

  /** From now on alarms fire. */
  start(): void {
    this.#arm();
  }

  of(className: string, name: string): ObjectAlarm {
    const key = `${className}/${name}`;
    return {
      get: () => {
        if (this.#running.get(key)?.replaced === false) return null;
        const [row] = this.#database.rows('SELECT at FROM alarms WHERE class = ? AND name = ?', [className, name]);
        return row === undefined ? null : Number(row.at);
      },
      set: (at) => {
        this.#replaced(key);
        this.#failures.delete(key);
        this.put(className, name, Math.round(at));
      },
      delete: () => {
        this.#replaced(key);
        this.#delete(className, name);
      },
    };
  }

  put(className: string, name: string, at: number): void {
    this.#database.rows('INSERT OR REPLACE INTO alarms (class, name, at) VALUES (?, ?, ?)', [className, name, at]);
    if (at < this.#armedFor) this.#arm();
  }

  /** Forgets the alarms of objects that another process owns now. */
  drop(isDropped: (key: string) => boolean): void {
    for (const { class: className, name } of this.#database.rows('SELECT class, name FROM alarms', []))
      if (isDropped(`${className}/${name}`)) this.#delete(String(className), String(name));
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#database.close();
  }

  #replaced(key: string): void {
    const running = this.#running.get(key);
    if (running !== undefined) running.replaced = true;
  }

  #delete(className: string, name: string): void {
    this.#database.rows('DELETE FROM alarms WHERE class = ? AND name = ?', [className, name]);
  }

  #arm(): void {
    clearTimeout(this.#timer);
    this.#armedFor = Number.POSITIVE_INFINITY;
    if (this.#closed || this.#running.size >= CONCURRENT_MAX) return; // Called again when a running handler ends.
    // Objects with a running handler are skipped; they are checked again when the handler ends.
    const next = this.#database.rows('SELECT class, name, at FROM alarms ORDER BY at LIMIT ?', [CONCURRENT_MAX + 1]);
    const [first] = next.filter((row) => !this.#runs(row));
    if (first === undefined) return;
    this.#armedFor = Number(first.at);
    const ms = Math.min(Math.max(0, this.#armedFor - Date.now()), TIMER_MAX_MS);
    this.#timer = setTimeout(() => this.#fire(), ms);
    this.#timer.unref();
  }

  #runs(row: SqliteRow): boolean {
    return this.#running.has(`${row.class}/${row.name}`);
  }

  #fire(): void {
    const query = 'SELECT class, name, at FROM alarms WHERE at <= ? ORDER BY at LIMIT ?';
    const due = this.#database.rows(query, [Date.now(), CONCURRENT_MAX + 1]);
    for (const row of due) {
      const key = `${row.class}/${row.name}`;
      if (!this.#running.has(key) && this.#running.size < CONCURRENT_MAX) {
        neverRejects(this.#handle(key, String(row.class), String(row.name)));
      }
    }
    this.#arm();
  }

  async #handle(key: string, className: string, name: string): Promise<void> {
    const running = { replaced: false };
    this.#running.set(key, running);
    let failure: unknown;
    try {
      await this.#ring(className, name);
    } catch (error) {
      failure = error;
      // Such an alarm is not retried: the next one was set before the failure.
      if (running.replaced) console.error(`the alarm of ${key} failed; its next one is set: ${errorText(error)}`);
    }
    await this.#store(running, () => this.#handled(key, className, name, failure));
    this.#running.delete(key);
    if (!this.#closed) this.#arm();
  }

  #handled(key: string, className: string, name: string, failure: unknown): void {
    if (failure !== undefined) return this.#retry(key, className, name, failure);
    this.#failures.delete(key);
    this.#delete(className, name);
    this.#onHandled?.(className, name);
  }

  /** Calls `write` until it succeeds. Until then the alarm counts as running and does not fire again. */
  async #store(running: RunningAlarm, write: () => void): Promise<void> {
    while (!this.#closed && !running.replaced && !(storageHealth.failure === undefined && writeIfPossible(write)))
      await new Promise<void>((resolve) => setTimeout(resolve, RETRY_MS).unref());
  }

  #retry(key: string, className: string, name: string, cause: unknown): void {
    const failures = this.#failures.get(key) ?? 0;
    this.#failures.set(key, failures + 1);
    const ms = backoffMs(failures, BACKOFF);
    const reason = errorText(cause);
    console.error(`the alarm of ${key} failed; trying again in ${ms / 1_000} s: ${reason}`);
    const query = 'UPDATE alarms SET at = ? WHERE class = ? AND name = ?';
    this.#database.rows(query, [Date.now() + ms, className, name]);
  }
}
