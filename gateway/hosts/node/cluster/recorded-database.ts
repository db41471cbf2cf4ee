import { deserialize, serialize } from 'node:v8';
import { Database, type SqliteRow, type SqliteValue } from '../sqlite.ts';

/**
 * One write of an object, as the log stores it. A write may have failed without an effect on the rest of its turn; it
 * then fails in the same way when it is repeated.
 */
type RecordedWrite =
  | { kind: 'rows'; query: string; bindings: unknown[]; failed: boolean }
  | { kind: 'script'; query: string; failed: boolean }
  | { kind: 'remove' };

/** The database of an owned object. It notes every write, so that another process can repeat them. */
export class RecordedDatabase extends Database {
  override readonly defers = false;
  #writes: RecordedWrite[] = [];

  override rows(query: string, bindings: readonly unknown[]): SqliteRow[] {
    if (this.reads(query)) return super.rows(query, bindings);
    // The caller may change a buffer after this call.
    const kept = bindings.map((value) => (value instanceof Uint8Array ? value.slice() : value));
    return this.#record({ kind: 'rows', query, bindings: kept, failed: false }, () => super.rows(query, bindings));
  }

  /** Recorded as single writes, which processes of every version can repeat. */
  override each(query: string, lists: readonly (readonly SqliteValue[])[]): void {
    for (const bindings of lists) this.rows(query, bindings);
  }

  override script(query: string): void {
    if (this.reads(query)) return super.script(query);
    this.#record({ kind: 'script', query, failed: false }, () => super.script(query));
  }

  override remove(): void {
    super.remove();
    this.#writes = [{ kind: 'remove' }];
  }

  #record<T>(write: Exclude<RecordedWrite, { kind: 'remove' }>, run: () => T): T {
    this.#writes.push(write);
    try {
      return run();
    } catch (error) {
      write.failed = true;
      throw error;
    }
  }

  /** Returns the writes since the last call, and forgets them. */
  take(): RecordedWrite[] {
    const taken = this.#writes;
    this.#writes = [];
    return taken;
  }

  /** Deletes the file, so that the object can be loaded into an empty database. */
  clear(): void {
    super.remove();
    this.#writes = [];
  }

  /** @throws Error if a write has another effect than when it was recorded */
  repeat(writes: readonly RecordedWrite[]): void {
    for (const write of writes) {
      if (write.kind === 'remove') {
        super.remove();
        continue;
      }
      const failed = fails(() =>
        write.kind === 'rows' ? super.rows(write.query, write.bindings) : super.script(write.query),
      );
      if (failed !== write.failed)
        throw new Error(`${this.path}: a recorded write ${failed ? 'fails' : 'succeeds'} now`);
    }
  }

  /** Writes a copy of the database to `path`. Call this between turns. */
  copyTo(path: string): void {
    super.rows('VACUUM INTO ?', [path]);
  }
}

function fails(run: () => void): boolean {
  try {
    run();
    return false;
  } catch {
    return true;
  }
}

export function encodeWrites(writes: readonly RecordedWrite[]): Buffer {
  return serialize(writes);
}

/** The bytes come from a process of this installation, which encoded them with `encodeWrites`. */
export function decodeWrites(bytes: Buffer): RecordedWrite[] {
  return deserialize(bytes) as RecordedWrite[];
}
