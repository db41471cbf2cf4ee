import { within } from '../../../shared/collections/within.ts';
import type { ObjectStorage, Sql } from '../../object-context.ts';

/** The last output of engines that failed, for operators and the node's provider. */

const KEPT_MS = 7 * 24 * 60 * 60_000;
/** Together 256 MiB at most; the oldest go first. */
const TAILS_MAX = 1_000;
/** A session fails once. A session that keeps on writing is broken, and each write is a quarter of a mebibyte. */
const AGAIN_MS = 10_000;

export interface LogTail {
  session: string;
  provider: string;
  /** Milliseconds since 1970. */
  at: number;
  text: string;
}

export class LogTails {
  readonly #sql: Sql;

  constructor({ sql }: ObjectStorage) {
    this.#sql = sql;
    sql.exec(
      'CREATE TABLE IF NOT EXISTS logs (session TEXT PRIMARY KEY, provider TEXT NOT NULL, at INTEGER NOT NULL, text TEXT NOT NULL)',
    );
  }

  /** Replaces the session's last tail. False: the new one came too soon after it. */
  put({ session, provider, at, text }: LogTail): boolean {
    const before = this.get(session, at)?.at;
    if (before !== undefined && within(AGAIN_MS, before, at)) return false;
    this.#sql.exec(
      'INSERT OR REPLACE INTO logs (session, provider, at, text) VALUES (?, ?, ?, ?)',
      session,
      provider,
      at,
      text,
    );
    this.sweep(at);
    return true;
  }

  get(session: string, now: number): LogTail | undefined {
    const query = 'SELECT session, provider, at, text FROM logs WHERE session = ? AND at > ?';
    return [
      ...this.#sql.exec<{ session: string; provider: string; at: number; text: string }>(query, session, now - KEPT_MS),
    ][0];
  }

  sweep(now: number): void {
    this.#sql.exec('DELETE FROM logs WHERE at <= ?', now - KEPT_MS);
    const query = 'DELETE FROM logs WHERE session IN (SELECT session FROM logs ORDER BY at DESC LIMIT -1 OFFSET ?)';
    this.#sql.exec(query, TAILS_MAX);
  }
}
