import type { ObjectStorage, Sql } from '../object-context.ts';
import { buffer } from './archive.ts';

/** Admissions remembered at most; the first to expire go first. A token's revocation ends the sessions that are still in here. */
const ADMISSIONS_MAX = 200_000;
const SESSIONS_OF_A_TOKEN_MAX = 50_000;

/** Which join token let which session in. Stored with the ticket: who never said a word is ended by it too. */
export class Admissions {
  readonly #sql: Sql;

  constructor({ sql }: ObjectStorage) {
    this.#sql = sql;
    sql.exec(
      'CREATE TABLE IF NOT EXISTS admissions (session TEXT PRIMARY KEY, token TEXT NOT NULL, ticket BLOB NOT NULL, expires INTEGER NOT NULL)',
    );
    sql.exec('CREATE INDEX IF NOT EXISTS admissions_token ON admissions (token)');
  }

  add(admission: { session: string; token: string; ticket: Uint8Array; expires: number }): void {
    const { session, token, ticket, expires } = admission;
    this.#sql.exec(
      'INSERT OR REPLACE INTO admissions (session, token, ticket, expires) VALUES (?, ?, ?, ?)',
      session,
      token,
      buffer(ticket),
      expires,
    );
  }

  /** Those that `token` let in, with their tickets. */
  of(token: string): { session: string; ticket: Uint8Array }[] {
    const query = 'SELECT session, ticket FROM admissions WHERE token = ? LIMIT ?';
    const rows = this.#sql.exec<{ session: string; ticket: ArrayBuffer }>(query, token, SESSIONS_OF_A_TOKEN_MAX);
    return [...rows].map(({ session, ticket }) => ({ session, ticket: new Uint8Array(ticket) }));
  }

  forget(session: string): void {
    this.#sql.exec('DELETE FROM admissions WHERE session = ?', session);
  }

  /** What has ended, in seconds since 1970, needs no ending. */
  sweep(nowS: number): void {
    this.#sql.exec('DELETE FROM admissions WHERE expires < ?', nowS);
    this.#sql.exec(
      'DELETE FROM admissions WHERE session IN (SELECT session FROM admissions ORDER BY expires DESC LIMIT -1 OFFSET ?)',
      ADMISSIONS_MAX,
    );
  }
}
