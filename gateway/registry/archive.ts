import type { RegistryEntry } from '../../shared/lattice/node.ts';
import type { Clock, ObjectContext, ObjectStorage } from '../platform/object-context.ts';
import { RETRY_MS, writeIfPossible } from '../platform/storage/health.ts';

/** Written this long after a change: many changes are one write, and no message waits for the disk. */
const BEHIND_MS = 250;

/** What one session leaves on disk; a part that is undefined is removed. */
interface Row {
  /** Its update of the lattice, encoded; the column is called `words`. */
  update?: Uint8Array | undefined;
  shown?: RegistryEntry | undefined;
}

interface ArchiveSource {
  update(session: string): Uint8Array | undefined;
  shown(session: string): RegistryEntry | undefined;
}

/**
 * The registry in the object's SQLite: read when the object starts, written behind. A crash loses a quarter of a second, which the
 * digests of agents bring back.
 */
export class Archive {
  readonly #storage: ObjectStorage;
  readonly #source: ArchiveSource;
  /** Bounded by the sessions there are: each is once in it. */
  readonly #changed = new Set<string>();
  /** Floors and evictions that could not be written yet: bounded by what issuers sign. */
  readonly #control = new Map<string, Uint8Array>();
  readonly #clock: Clock;
  #timer: (() => void) | undefined;

  constructor({ storage, clock }: Pick<ObjectContext, 'storage' | 'clock'>, source: ArchiveSource) {
    this.#storage = storage;
    this.#clock = clock;
    this.#source = source;
    const { sql } = storage;
    sql.exec('DROP TABLE IF EXISTS sessions'); // a version before the lattice made it
    sql.exec('CREATE TABLE IF NOT EXISTS entries (session TEXT PRIMARY KEY, words BLOB, shown TEXT, updated INTEGER)');
    sql.exec('CREATE TABLE IF NOT EXISTS control (id TEXT PRIMARY KEY, words BLOB NOT NULL)');
  }

  /** Floors and revocations, to be loaded first: entries that they exclude are not loaded. */
  *control(): Generator<Uint8Array> {
    for (const row of this.#storage.sql.exec<{ words: ArrayBuffer }>('SELECT words FROM control'))
      yield new Uint8Array(row.words);
  }

  /** What was stored of each session, the longest unchanged first. */
  *entries(): Generator<Row> {
    const query = 'SELECT words, shown FROM entries ORDER BY updated';
    for (const row of this.#storage.sql.exec<{ words: ArrayBuffer | null; shown: string | null }>(query)) {
      yield {
        update: row.words === null ? undefined : new Uint8Array(row.words),
        // Written by this class: of the form that it was given.
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

  /** The session has changed: its row is written in a moment. */
  touch(session: string): void {
    this.#changed.add(session);
    this.#timer ??= this.#clock.after(BEHIND_MS, () => this.flush());
  }

  /** Now. */
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
