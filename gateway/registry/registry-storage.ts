import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import type { Clock, ObjectContext, ObjectStorage } from '../platform/object-context.ts';
import { RETRY_MS, writeIfPossible } from '../platform/storage/storage-health.ts';

/** A change is written after this time, so that many changes are one write and no message waits for the disk. */
const BEHIND_MS = 250;

/** The stored state of one session. Undefined parts are removed. */
interface Row {
  /** The session's encoded lattice update. The column is called `words`. */
  update?: Uint8Array | undefined;
  shown?: RegistryEntry | undefined;
}

interface StoredSessionSource {
  update(session: string): Uint8Array | undefined;
  shown(session: string): RegistryEntry | undefined;
}

/**
 * The registry in the object's SQLite database. It is read when the object starts, and written with a delay. A crash
 * loses at most a quarter of a second of changes, which the agents' digests restore.
 */
export class RegistryStorage {
  readonly #storage: ObjectStorage;
  readonly #source: StoredSessionSource;
  /** Sessions whose changes are not written yet. At most one entry per session. */
  readonly #changed = new Set<string>();
  /** Watermarks and revocations that could not be written yet. Bounded by what issuers sign. */
  readonly #control = new Map<string, Uint8Array>();
  readonly #clock: Clock;
  #timer: (() => void) | undefined;

  constructor({ storage, clock }: Pick<ObjectContext, 'storage' | 'clock'>, source: StoredSessionSource) {
    this.#storage = storage;
    this.#clock = clock;
    this.#source = source;
    const { sql } = storage;
    sql.exec('DROP TABLE IF EXISTS sessions'); // a table of a version before the lattice
    sql.exec('CREATE TABLE IF NOT EXISTS entries (session TEXT PRIMARY KEY, words BLOB, shown TEXT, updated INTEGER)');
    sql.exec('CREATE TABLE IF NOT EXISTS control (id TEXT PRIMARY KEY, words BLOB NOT NULL)');
  }

  /**
   * Reads watermarks and revocations. They must be loaded first, because the entries that they exclude are not loaded.
   */
  *control(): Generator<Uint8Array> {
    for (const row of this.#storage.sql.exec<{ words: ArrayBuffer }>('SELECT words FROM control'))
      yield new Uint8Array(row.words);
  }

  /** Reads the stored state of each session, oldest change first. */
  *entries(): Generator<Row> {
    const query = 'SELECT words, shown FROM entries ORDER BY updated';
    for (const row of this.#storage.sql.exec<{ words: ArrayBuffer | null; shown: string | null }>(query)) {
      yield {
        update: row.words === null ? undefined : new Uint8Array(row.words),
        // Only this class writes the column, so the type is known.
        shown: row.shown === null ? undefined : (JSON.parse(row.shown) as RegistryEntry),
      };
    }
  }

  keepControl(id: string, update: Uint8Array): void {
    if (writeIfPossible(() => this.#writeControl(id, update))) return;
    this.#control.set(id, update);
    this.#timer ??= this.#clock.after(RETRY_MS, () => this.flush());
  }

  #writeControl(id: string, update: Uint8Array): void {
    this.#storage.sql.exec('INSERT OR REPLACE INTO control (id, words) VALUES (?, ?)', id, buffer(update));
  }

  /** Marks a session as changed. Its row is written after BEHIND_MS. */
  touch(session: string): void {
    this.#changed.add(session);
    this.#timer ??= this.#clock.after(BEHIND_MS, () => this.flush());
  }

  /** Writes waiting changes now. */
  flush(): void {
    if (this.#timer === undefined) return;
    this.#timer();
    this.#timer = undefined;
    const written = writeIfPossible(() => {
      for (const [id, update] of this.#control) {
        this.#writeControl(id, update);
        this.#control.delete(id);
      }
      for (const session of this.#changed) {
        this.#write(session);
        this.#changed.delete(session);
      }
    });
    if (!written) this.#timer = this.#clock.after(RETRY_MS, () => this.flush());
  }

  #write(session: string): void {
    const { sql } = this.#storage;
    const update = this.#source.update(session);
    const shown = this.#source.shown(session);
    if (update === undefined && shown === undefined) {
      sql.exec('DELETE FROM entries WHERE session = ?', session);
      return;
    }
    sql.exec(
      'INSERT OR REPLACE INTO entries (session, words, shown, updated) VALUES (?, ?, ?, ?)',
      session,
      update === undefined ? null : buffer(update),
      shown === undefined ? null : JSON.stringify(shown),
      shown === undefined ? 0 : Date.parse(shown.updated_at),
    );
  }
}

export function buffer(bytes: Uint8Array): ArrayBuffer {
  return new Uint8Array(bytes).buffer;
}
