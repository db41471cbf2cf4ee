/** The files that calls of a batch's function wrote, until the batch has ended. */
import { BATCH_OUTPUTS_MAX } from '../../shared/batch/function-files.ts';
import type { ObjectStorage } from '../platform/object-context.ts';
import { OUTPUT_MAX_BYTES } from './output-lines.ts';

/** `stored`: the gateway has the bytes. `named`: a result of the batch names the file. */
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS output (id TEXT PRIMARY KEY, bytes INTEGER NOT NULL, stored INTEGER NOT NULL DEFAULT 0, named INTEGER NOT NULL DEFAULT 0);
`;

export class BatchOutputs {
  readonly #storage: ObjectStorage;

  constructor(storage: ObjectStorage) {
    this.#storage = storage;
    storage.sql.exec(SCHEMA);
  }

  /** Reserves space for a file, before its bytes arrive. Idempotent. @returns false if the batch has too many */
  reserve(id: string, bytes: number): boolean {
    const { sql } = this.#storage;
    if (sql.exec('SELECT id FROM output WHERE id = ?', id).toArray().length > 0) return true;
    const query = 'SELECT count(*) AS n, coalesce(sum(bytes), 0) AS bytes FROM output';
    const used = sql.exec<{ n: number; bytes: number }>(query).one();
    if (used.n >= BATCH_OUTPUTS_MAX || used.bytes + bytes > OUTPUT_MAX_BYTES) return false;
    sql.exec('INSERT INTO output (id, bytes) VALUES (?, ?)', id, bytes);
    return true;
  }

  /** The gateway has the bytes of a reserved file. */
  setStored(id: string): void {
    this.#storage.sql.exec('UPDATE output SET stored = 1 WHERE id = ?', id);
  }

  isStored(id: string): boolean {
    return this.#storage.sql.exec('SELECT id FROM output WHERE id = ? AND stored = 1', id).toArray().length > 0;
  }

  setNamed(ids: Iterable<string>): void {
    for (const id of ids) this.#storage.sql.exec('UPDATE output SET named = 1 WHERE id = ?', id);
  }

  /** Ids of the files that results name, or that no result names. */
  ids({ named }: { named: boolean }): string[] {
    const rows = this.#storage.sql.exec<{ id: string }>('SELECT id FROM output WHERE named = ?', named ? 1 : 0);
    return rows.toArray().map(({ id }) => id);
  }

  forget(): void {
    this.#storage.sql.exec('DELETE FROM output');
  }
}
