/**
 * Conversations that a person shares by a link. The browser encrypts each with a key that is only in the link's
 * fragment, so the object knows only ids, sizes and times. Each share has an end.
 */
import type { ObjectStorage } from '../platform/object-context.ts';

/** Maximum shares of one person. */
export const SHARES_MAX = 200;

export interface SharedConversation {
  id: string;
  bytes: number;
  /** Milliseconds since 1970. */
  expiresAt: number;
}

export class SharedBoxes {
  readonly #sql: ObjectStorage['sql'];

  constructor({ sql }: Pick<ObjectStorage, 'sql'>) {
    this.#sql = sql;
    sql.exec(`CREATE TABLE IF NOT EXISTS shares (id TEXT PRIMARY KEY, box BLOB NOT NULL, bytes INTEGER NOT NULL,
      expires_at INTEGER NOT NULL)`);
  }

  list(now: number): SharedConversation[] {
    const query =
      'SELECT id, bytes, expires_at AS expiresAt FROM shares WHERE expires_at > ? ORDER BY expires_at DESC, id';
    return this.#sql.exec<{ id: string; bytes: number; expiresAt: number }>(query, now).toArray();
  }

  read(id: string, now: number): Uint8Array | undefined {
    const query = 'SELECT box FROM shares WHERE id = ? AND expires_at > ?';
    const [row] = this.#sql.exec<{ box: ArrayBuffer }>(query, id, now).toArray();
    return row && new Uint8Array(row.box);
  }

  /** A share is never changed: a reader with the key must not see a later text. False: it exists. */
  add(id: string, box: Uint8Array, expiresAt: number): boolean {
    const query = 'INSERT OR IGNORE INTO shares VALUES (?, ?, ?, ?) RETURNING id';
    return this.#sql.exec(query, id, box, box.length, expiresAt).toArray().length > 0;
  }

  remove(id: string): boolean {
    return this.#sql.exec('DELETE FROM shares WHERE id = ? RETURNING id', id).toArray().length > 0;
  }

  clear(): void {
    this.#sql.exec('DELETE FROM shares');
  }

  /** Deletes shares that have ended. Returns when the next share ends; undefined: there is none. */
  sweep(now: number): number | undefined {
    this.#sql.exec('DELETE FROM shares WHERE expires_at <= ?', now);
    const [row] = this.#sql.exec<{ next: number | null }>('SELECT min(expires_at) AS next FROM shares').toArray();
    return row?.next ?? undefined;
  }

  get use(): { bytes: number; shares: number } {
    const query = 'SELECT coalesce(sum(bytes), 0) AS bytes, count(*) AS shares FROM shares';
    return this.#sql.exec<{ bytes: number; shares: number }>(query).one();
  }
}
