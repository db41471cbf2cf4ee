/**
 * The log of owned objects in PostgreSQL. Each turn of an object that wrote something is stored before the object's
 * messages leave. The primary key (object, number) is the fence: if two processes own an object, only one of them can
 * store the next number, and the other one loses the object. See docs/design/postgresql.md.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { errorText } from '../../../../shared/text/error-text.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { type Connection, isDataError, type PostgresPool } from '../postgresql/postgres-pool.ts';

/** Maximum rows and bytes of one append. */
const ROWS_MAX = 1_000;
const APPEND_MAX_BYTES = 4 * 1024 * 1024;
/** Pause before an append is tried again, if PostgreSQL did not answer. */
const RETRY_MS = 250;
const NO_ALARM = -1;

/** The object's next number was stored by another process, so this process does not own the object. */
export class FencedError extends Error {
  override readonly name = 'Fenced';
}

/** What one append stores of one object. */
export interface LogEntry {
  readonly object: string;
  readonly slot: number;
  readonly seq: number;
  /** Names this instance of the object. A row with this name and number was stored for this entry. */
  readonly owner: string;
  readonly writes: Buffer;
  /** The object's alarm: a time, null if it was deleted, undefined if it did not change. */
  readonly alarm: number | null | undefined;
}

/** An object with turns that are not stored yet. */
export interface LogSource {
  /** Returns everything since the last call as one row. Undefined: nothing is left to store. */
  take(): LogEntry | undefined;
  stored(): void;
  fenced(seq: number): void;
}

interface TurnLogOptions {
  pool: PostgresPool;
  /** Called with the reason while appends fail, and with undefined when they succeed again. */
  onHealth(failure: string | undefined): void;
}

// A row is stored only if the object's number before it is stored. `appended` are the rows that this statement stored.
const APPEND = `WITH given AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], $5::smallint[],
    $6::text[]) AS g (object, seq, writes, alarm, slot, owner)),
  appended AS (
    INSERT INTO object_log (object, seq, owner, writes) SELECT g.object, g.seq, g.owner, g.writes FROM given g
    WHERE (g.seq = 1 AND NOT EXISTS (SELECT 1 FROM object_images i WHERE i.object = g.object))
      OR EXISTS (SELECT 1 FROM object_log b WHERE b.object = g.object AND b.seq = g.seq - 1)
      OR EXISTS (SELECT 1 FROM object_images i WHERE i.object = g.object AND i.seq = g.seq - 1)
    ON CONFLICT DO NOTHING RETURNING object),
  alarmed AS (
    INSERT INTO object_alarms (object, slot, at) SELECT g.object, g.slot, g.alarm FROM given g JOIN appended USING (object)
    WHERE g.alarm >= 0 ON CONFLICT (object) DO UPDATE SET at = excluded.at, slot = excluded.slot),
  unalarmed AS (
    DELETE FROM object_alarms a USING given g JOIN appended USING (object)
    WHERE a.object = g.object AND g.alarm = ${NO_ALARM})
  SELECT object FROM appended`;

export class TurnLog {
  readonly #options: TurnLogOptions;
  /** Objects with something to store, in the order of their first turn. Bounded by the objects in memory. */
  readonly #waiting = new Set<LogSource>();
  #running: Promise<void> | undefined;
  /** Rows of the append that is on its way. */
  #storing = 0;
  #closed = false;

  constructor(options: TurnLogOptions) {
    this.#options = options;
  }

  /** Number of objects with something that is not stored. */
  get waiting(): number {
    return this.#waiting.size + this.#storing;
  }

  /** Stores what `source.take()` returns, soon and together with other objects. */
  append(source: LogSource): void {
    this.#waiting.add(source);
    this.#start();
  }

  #start(): void {
    if (this.#running !== undefined || this.#closed) return;
    this.#running = this.#run().finally(() => {
      this.#running = undefined;
      if (this.#waiting.size > 0) this.#start();
    });
    neverRejects(this.#running);
  }

  async #run(): Promise<void> {
    while (this.#waiting.size > 0 && !this.#closed) {
      // Each batch begins in a macrotask: then no turn of an object is open, and turns of one tick are stored together.
      await new Promise((resolve) => setImmediate(resolve));
      const batch = this.#batch();
      this.#storing = batch.size;
      await this.#store(batch);
      this.#storing = 0;
    }
  }

  #batch(): Map<LogEntry, LogSource> {
    const batch = new Map<LogEntry, LogSource>();
    let bytes = 0;
    for (const source of this.#waiting) {
      if (batch.size >= ROWS_MAX || bytes >= APPEND_MAX_BYTES) break;
      this.#waiting.delete(source);
      const entry = source.take();
      if (entry === undefined) continue;
      batch.set(entry, source);
      bytes += entry.writes.length;
    }
    return batch;
  }

  /** Tries until PostgreSQL has answered for each row: a repetition finds the rows that were stored. */
  async #store(batch: Map<LogEntry, LogSource>): Promise<void> {
    while (batch.size > 0 && !this.#closed) {
      try {
        await this.#tryStore(batch);
        this.#options.onHealth(undefined);
      } catch (error) {
        if (isDataError(error)) return this.#refuse(batch);
        this.#options.onHealth(errorText(error));
        await delay(RETRY_MS);
      }
    }
  }

  /** PostgreSQL refuses a row of the batch, and would refuse it again: its object is given up, the others are stored. */
  async #refuse(batch: Map<LogEntry, LogSource>): Promise<void> {
    const isAlone = batch.size === 1;
    for (const [entry, source] of batch) {
      if (isAlone) source.fenced(entry.seq);
      else await this.#store(new Map([[entry, source]]));
    }
  }

  async #tryStore(batch: Map<LogEntry, LogSource>): Promise<void> {
    const appended = await this.#insert([...batch.keys()]);
    for (const [entry, source] of batch) {
      const isStored = appended.has(entry.object) || (await this.#isMine(entry));
      batch.delete(entry);
      if (isStored) source.stored();
      else source.fenced(entry.seq);
    }
  }

  /** False: another process stored this row, or the row before it is missing. Rejects if PostgreSQL is away. */
  async storeOne(entry: LogEntry): Promise<boolean> {
    return (await this.#insert([entry])).has(entry.object) || this.#isMine(entry);
  }

  /** Returns the objects of the rows that this statement stored. */
  async #insert(entries: readonly LogEntry[]): Promise<Set<string>> {
    const { rows } = await this.#options.pool.query(APPEND, [
      entries.map(({ object }) => object),
      entries.map(({ seq }) => seq),
      entries.map(({ writes }) => writes),
      entries.map(({ alarm }) => (alarm === null ? NO_ALARM : (alarm ?? null))),
      entries.map(({ slot }) => slot),
      entries.map(({ owner }) => owner),
    ]);
    return new Set(rows.map(([object]) => String(object)));
  }

  /** True if an earlier append of this row was committed, but its answer was lost. */
  async #isMine({ object, seq, owner }: LogEntry): Promise<boolean> {
    const { pool } = this.#options;
    const query = 'SELECT owner FROM object_log WHERE object = $1 AND seq = $2';
    return (await pool.query(query, [object, seq])).rows[0]?.[0] === owner;
  }

  /** Stores what waits, for at most `ms`, and then stops. */
  async close(ms: number): Promise<void> {
    const timer = setTimeout(() => {
      this.#closed = true;
    }, ms);
    while (this.#running !== undefined) await this.#running;
    clearTimeout(timer);
    this.#closed = true;
  }
}

/** An object as PostgreSQL has it. */
export interface StoredObject {
  image: Buffer | undefined;
  /** Writes since the image, in order. */
  rows: Buffer[];
  /** The last number; 0: nothing is stored. */
  seq: number;
}

const READ_OBJECT = 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY';

export async function readObject(pool: PostgresPool, object: string): Promise<StoredObject> {
  return pool.withConnection(async (connection) => {
    await connection.query(READ_OBJECT);
    const stored = await readStoredObject(connection, object);
    await connection.query('COMMIT');
    return stored;
  });
}

/** Reads an object in the transaction of `connection`. */
export async function readStoredObject(connection: Connection, object: string): Promise<StoredObject> {
  const [image] = (await connection.query('SELECT seq, image FROM object_images WHERE object = $1', [object])).rows;
  const from = Number(image?.[0] ?? 0);
  const query = 'SELECT seq, writes FROM object_log WHERE object = $1 AND seq > $2 ORDER BY seq';
  const { rows } = await connection.query(query, [object, from]);
  const numbers = rows.map(([seq]) => Number(seq));
  const gap = numbers.findIndex((seq, at) => seq !== from + at + 1);
  if (gap !== -1) throw new Error(`the log of ${object} lacks the row ${from + gap + 1}`);
  return {
    image: image === undefined ? undefined : bytesOf(image[1]),
    rows: rows.map(([, writes]) => bytesOf(writes)),
    seq: numbers.at(-1) ?? from,
  };
}

/** PostgreSQL's text form of bytea. */
function bytesOf(text: unknown): Buffer {
  return Buffer.from(String(text).slice('\\x'.length), 'hex');
}
