import { decodeTicket } from '../../shared/lattice/ticket.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import { PARTITION_WINDOW_S } from '../issuer/issuer.ts';
import type { ObjectStorage, Sql } from '../platform/object-context.ts';
import { writeIfPossible } from '../platform/storage/storage-health.ts';
import { buffer } from './registry-storage.ts';

/**
 * Maximum stored admissions; those that expire first are dropped first. Revoking a token ends only the sessions that
 * are still stored here, so this bounds what a revocation reaches.
 */
const ADMISSIONS_MAX = 200_000;
const SESSIONS_OF_A_TOKEN_MAX = 50_000;

/**
 * Maximum time from an admission to the first record of the session; normally an agent connects immediately. A later
 * first record is refused, and the session no longer counts against the limits.
 */
const JOIN_WINDOW_MS = 10 * 60_000;

interface CountedAdmission {
  session: string;
  token: string;
  provider: string;
  ticket: Uint8Array;
  /** When the ticket expires; seconds since 1970. */
  expires: number;
}

/** Selects the admissions to count: all of one join token, or all of one provider. */
export type AdmissionCounter = { token: string } | { provider: string };

/**
 * Stores which join token admitted which session, with the session's ticket, so that a session that never sent a record
 * can be ended too.
 */
export class Admissions {
  readonly #sql: Sql;

  constructor({ sql }: ObjectStorage) {
    this.#sql = sql;
    sql.exec(
      'CREATE TABLE IF NOT EXISTS admissions (session TEXT PRIMARY KEY, token TEXT NOT NULL, ticket BLOB NOT NULL, expires INTEGER NOT NULL)',
    );
    this.#addColumns();
    sql.exec(`CREATE INDEX IF NOT EXISTS admissions_token ON admissions (token);
      CREATE INDEX IF NOT EXISTS admissions_provider ON admissions (provider, ended)`);
  }

  /** Adds the columns that older versions did not have. Sessions in such a table count as having sent a record. */
  #addColumns(): void {
    const columns = this.#sql.exec<{ name: string }>('SELECT name FROM pragma_table_info(?)', 'admissions').toArray();
    if (columns.some(({ name }) => name === 'provider')) return;
    this.#sql.exec(`ALTER TABLE admissions ADD COLUMN provider TEXT NOT NULL DEFAULT '';
      ALTER TABLE admissions ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE admissions ADD COLUMN spoke INTEGER NOT NULL DEFAULT 1;
      ALTER TABLE admissions ADD COLUMN ended INTEGER NOT NULL DEFAULT 0`);
    for (const { session, ticket } of this.#sql
      .exec<{ session: string; ticket: ArrayBuffer }>('SELECT session, ticket FROM admissions')
      .toArray()) {
      const { provider } = decodeTicket(new Uint8Array(ticket), workerdCrypto);
      this.#sql.exec('UPDATE admissions SET provider = ? WHERE session = ?', provider, session);
    }
  }

  /** Stores an admission. `now`: milliseconds since the epoch. */
  add({ session, token, provider, ticket, expires }: CountedAdmission, now: number): void {
    this.#sql.exec(
      `INSERT OR REPLACE INTO admissions (session, token, provider, ticket, expires, at, spoke, ended)
       VALUES (?, ?, ?, ?, ?, ?, 0, 0)`,
      ...[session, token, provider, buffer(ticket), expires, now],
    );
  }

  /** Returns the sessions that `token` admitted and that have not ended, with their tickets. */
  of(token: string): { session: string; ticket: Uint8Array }[] {
    const query = 'SELECT session, ticket FROM admissions WHERE token = ? AND ended = 0 LIMIT ?';
    const rows = this.#sql.exec<{ session: string; ticket: ArrayBuffer }>(query, token, SESSIONS_OF_A_TOKEN_MAX);
    return [...rows].map(({ session, ticket }) => ({ session, ticket: new Uint8Array(ticket) }));
  }

  /**
   * Called at a session's first record. Returns false if the session was admitted too long ago: another session may
   * already count in its place. Returns true if its admission is not stored here.
   */
  speaks(session: string, now: number): boolean {
    const query = 'SELECT at, spoke FROM admissions WHERE session = ?';
    const [row] = this.#sql.exec<{ at: number; spoke: number }>(query, session).toArray();
    if (row === undefined || row.spoke === 1) return true;
    if (now - row.at > JOIN_WINDOW_MS) return false;
    writeIfPossible(() => this.#sql.exec('UPDATE admissions SET spoke = 1 WHERE session = ?', session));
    return true;
  }

  /** Marks a session that left or was evicted. It no longer counts as a node; its ticket counts until it expires. */
  ended(session: string): void {
    writeIfPossible(() => this.#sql.exec('UPDATE admissions SET ended = 1 WHERE session = ? AND ended = 0', session));
  }

  /** Removes a session as if it had never been admitted. */
  forget(session: string): void {
    // If the disk is full, the row stays until its ticket expires.
    writeIfPossible(() => this.#sql.exec('DELETE FROM admissions WHERE session = ?', session));
  }

  /**
   * Returns the number of a provider's tickets that replicas still have to remember, including those of ended sessions.
   */
  tickets(provider: string, nowS: number): number {
    const query = 'SELECT count(*) AS n FROM admissions WHERE provider = ? AND expires >= ?';
    return this.#sql.exec<{ n: number }>(query, provider, nowS - PARTITION_WINDOW_S).one().n;
  }

  /**
   * Returns the number of nodes that count against a limit: sessions that are `present`, and sessions that were
   * admitted recently and have sent no record yet. If fewer than `enough` sessions have not ended, returns their number
   * without checking which are `present`.
   */
  places(counted: AdmissionCounter, enough: number, now: number, present: (session: string) => boolean): number {
    const [where, value] = 'token' in counted ? ['token', counted.token] : ['provider', counted.provider];
    const query = `FROM admissions WHERE ${where} = ? AND ended = 0 AND (spoke = 1 OR at > ?)`;
    const since = now - JOIN_WINDOW_MS;
    const { n } = this.#sql.exec<{ n: number }>(`SELECT count(*) AS n ${query}`, value, since).one();
    if (n < enough) return n;
    const rows = this.#sql.exec<{ session: string; spoke: number }>(`SELECT session, spoke ${query}`, value, since);
    let places = 0;
    for (const { session, spoke } of rows) if (spoke === 0 || present(session)) places++;
    return places;
  }

  /** Deletes admissions that replicas have forgotten. `nowS`: seconds since 1970. */
  sweep(nowS: number): void {
    this.#sql.exec('DELETE FROM admissions WHERE expires < ?', nowS - PARTITION_WINDOW_S);
    this.#sql.exec(
      'DELETE FROM admissions WHERE session IN (SELECT session FROM admissions ORDER BY expires DESC LIMIT -1 OFFSET ?)',
      ADMISSIONS_MAX,
    );
  }
}
