/** One owned object's part of the log: its numbers, its alarm and its images. */
import { readFileSync, rmSync } from 'node:fs';
import { errorText } from '../../../../shared/text/error-text.ts';
import { inBackground } from '../../../../shared/timing/in-background.ts';
import type { PostgresPool } from '../postgresql/postgres-pool.ts';
import { encodeWrites, type RecordedDatabase } from './recorded-database.ts';
import { FencedError, type LogEntry, type LogSource, type TurnLog } from './turn-log.ts';

/** After this number of rows, or of their bytes, an image replaces them. */
const IMAGE_ROWS = 256;
const IMAGE_LOG_BYTES = 1024 * 1024;
/** A larger database gets no image: it would be copied and sent too often. */
const IMAGE_MAX_BYTES = 64 * 1024 * 1024;
/**
 * Rows are deleted this long after their image was stored. An append of a former owner that began before the image
 * must still find them: its own time limit is half of this.
 */
const DELETE_AFTER_MS = 10_000;

interface ObjectLogOptions {
  log: TurnLog;
  pool: PostgresPool;
  /** The object's key, `CLASS/NAME`. */
  object: string;
  slot: number;
  owner: string;
  database: RecordedDatabase;
  /** The last stored number, and the rows since the last image. */
  seq: number;
  rows: number;
  report(line: string): void;
}

type Turns = PromiseWithResolvers<void>;
type Writes = ReturnType<RecordedDatabase['take']>;

export class ObjectLog implements LogSource {
  readonly #options: ObjectLogOptions;
  #seq: number;
  /** Committed writes that no row contains yet. Bounded, because an object's calls wait for their rows. */
  #writes: Writes = [];
  #alarm: number | null | undefined;
  /** Settled when the writes above are stored. */
  #next: Turns | undefined;
  /** Settled when the row that is being stored is stored. */
  #current: Turns | undefined;
  #rows: number;
  #bytes = 0;
  /** An image that is stored after its last row. */
  #image: { seq: number; bytes: Buffer } | undefined;
  #ended = false;

  constructor(options: ObjectLogOptions) {
    this.#options = options;
    this.#seq = options.seq;
    this.#rows = options.rows;
  }

  /** Notes the object's alarm: a time, or null if it was deleted. It is stored with the turn. */
  setAlarm(at: number | null): void {
    this.#alarm = at;
  }

  /** Stores the writes of a turn, which the database has committed. @throws FencedError, as a rejection */
  commit(): Promise<void> {
    for (const write of this.#options.database.take()) this.#writes.push(write);
    this.#next ??= Promise.withResolvers();
    if (this.#ended) this.#next.reject(new FencedError(`${this.#options.object} was given up`));
    else this.#options.log.append(this);
    return this.#next.promise;
  }

  take(): LogEntry | undefined {
    if (this.#ended || this.#next === undefined) return undefined;
    const { object, slot, owner } = this.#options;
    const writes = encodeWrites(this.#writes);
    this.#writes = [];
    this.#current = this.#next;
    this.#next = undefined;
    this.#seq++;
    this.#rows++;
    this.#bytes += writes.length;
    const alarm = this.#alarm;
    this.#alarm = undefined;
    if (this.#rows >= IMAGE_ROWS || this.#bytes >= IMAGE_LOG_BYTES) this.#takeImage();
    return { object, slot, seq: this.#seq, owner, writes, alarm };
  }

  #takeImage(): void {
    const { database, object, report } = this.#options;
    this.#rows = 0;
    this.#bytes = 0;
    if (database.size > IMAGE_MAX_BYTES) return report(`${object} is too large for an image: ${database.size} bytes`);
    const path = `${database.path}.image`;
    try {
      rmSync(path, { force: true });
      database.copyTo(path);
      this.#image = { seq: this.#seq, bytes: readFileSync(path) };
    } catch (error) {
      report(`an image of ${object} cannot be written: ${errorText(error)}`);
    } finally {
      rmSync(path, { force: true });
    }
  }

  stored(): void {
    const current = this.#current;
    this.#current = undefined;
    current?.resolve();
    const image = this.#image;
    this.#image = undefined;
    const { object, report } = this.#options;
    if (image !== undefined) inBackground(`image of ${object}`, this.#storeImage(image), report);
    if (this.#next !== undefined) this.#options.log.append(this);
  }

  async #storeImage({ seq, bytes }: { seq: number; bytes: Buffer }): Promise<void> {
    const { pool, object, report } = this.#options;
    const store = `INSERT INTO object_images (object, seq, image) VALUES ($1, $2, $3) ON CONFLICT (object)
      DO UPDATE SET seq = excluded.seq, image = excluded.image WHERE object_images.seq < excluded.seq`;
    await pool.query(store, [object, seq, bytes]);
    const timer = setTimeout(() => {
      const erase = `DELETE FROM object_log WHERE object = $1 AND seq <= $2
        AND EXISTS (SELECT 1 FROM object_images i WHERE i.object = $1 AND i.seq >= $2)`;
      inBackground(`old rows of ${object}`, pool.query(erase, [object, seq]), report);
    }, DELETE_AFTER_MS);
    timer.unref();
  }

  fenced(seq: number): void {
    this.end(new FencedError(`${this.#options.object} has another owner: it stored the row ${seq}`));
  }

  /** Nothing more is stored. Turns that wait are rejected. */
  end(cause: Error): void {
    this.#ended = true;
    this.#current?.reject(cause);
    this.#next?.reject(cause);
    this.#current = undefined;
    this.#writes = [];
  }

  /** Resolves when all turns so far are stored. */
  async settled(): Promise<void> {
    await (this.#next ?? this.#current)?.promise;
  }
}
