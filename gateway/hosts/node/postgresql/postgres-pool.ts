/** Connections to PostgreSQL, and what its errors mean. The only file that imports the driver. */
import pg from 'pg';
import type { PoolState } from '../../../env.ts';
import { PlaceQueue } from './place-queue.ts';

/** Connections for accounts. PostgreSQL's default for all clients together is 100. */
const CONNECTIONS_MAX = 8;
/** Time limit of a new connection, and of a wait for one of the pool while no statement of the others ends. */
const CONNECT_TIMEOUT_MS = 3_000;
/** A connection that is not used for this time is closed. */
const IDLE_MS = 60_000;
/** Maximum time of one statement, including the wait for the lock of changes. A request waits meanwhile. */
export const STATEMENT_TIMEOUT_MS = 5_000;
/** The driver gives up later than the server, so that the server's error arrives first. */
export const QUERY_TIMEOUT_MS = STATEMENT_TIMEOUT_MS + 1_000;

/** Object identifiers of PostgreSQL's types (pg_type.dat) with values that are not texts here. */
const BOOLEAN = 16;
const NUMBERS: readonly number[] = [20, 21, 23, 700, 701, 1700];

/** Values as SQLite returns them: booleans are 1 and 0, JSON stays text, all numbers are JavaScript's. */
const TYPES = {
  getTypeParser: (oid: number) => {
    if (oid === BOOLEAN) return (text: string) => (text === 't' ? 1 : 0);
    return NUMBERS.includes(oid) ? Number : (text: string) => text;
  },
};

export type Value = string | number | null;

export interface Rows {
  columns: string[];
  rows: Value[][];
  /** Number of rows that the statement changed or returned. */
  count: number;
}

export interface Connection {
  query(text: string, values?: readonly unknown[]): Promise<Rows>;
}

interface PoolOptions {
  url: string;
  /** Name of the connections in pg_stat_activity. */
  name: string;
  most?: number;
  queryTimeoutMs?: number;
}

export class PostgresPool implements Connection {
  readonly #pool: pg.Pool;
  readonly #name: string;
  /** Has one place for each connection, so that the driver's pool never lets a caller wait. */
  readonly #places: PlaceQueue;

  constructor({ url, name, most = CONNECTIONS_MAX, queryTimeoutMs = QUERY_TIMEOUT_MS }: PoolOptions) {
    this.#name = name;
    this.#places = new PlaceQueue({ places: most, stallMs: CONNECT_TIMEOUT_MS, isProgress: isDatabaseError });
    this.#pool = new pg.Pool({
      connectionString: url,
      application_name: name,
      max: most,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      idleTimeoutMillis: IDLE_MS,
      query_timeout: queryTimeoutMs,
      keepAlive: true,
      types: TYPES,
    });
    // An idle connection may break, for example when the server restarts. The next query opens another one.
    this.#pool.on('error', () => {});
  }

  /** Connections now, and statements that wait for one. */
  get state(): PoolState {
    const { totalCount, idleCount } = this.#pool;
    const name = this.#name.slice(this.#name.indexOf(' ') + 1);
    return { name, busy: totalCount - idleCount, idle: idleCount, waiting: this.#places.waiting };
  }

  query(text: string, values: readonly unknown[] = []): Promise<Rows> {
    return this.withConnection((connection) => connection.query(text, values));
  }

  /** Runs `work` on one connection. After an error the connection is closed, which also ends an open transaction. */
  withConnection<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    return this.#places.withPlace(() => this.#withClient(work));
  }

  async #withClient<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    // Without a listener, a connection that breaks between two queries would end the process.
    const ignore = () => {};
    client.on('error', ignore);
    try {
      const result = await work({ query: (text, values) => run(client, text, values) });
      client.off('error', ignore);
      client.release();
      return result;
    } catch (error) {
      client.release(true);
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }
}

async function run(client: pg.PoolClient, text: string, values?: readonly unknown[]): Promise<Rows> {
  const asked = { text, rowMode: 'array' as const };
  // Without values the driver uses the simple protocol, which accepts several statements.
  const result = await client.query<Value[]>(
    values === undefined || values.length === 0 ? asked : { ...asked, values: [...values] },
  );
  const { fields, rows, rowCount } = Array.isArray(result) ? ((result as (typeof result)[]).at(-1) ?? result) : result;
  return { columns: fields.map(({ name }) => name), rows, count: rowCount ?? 0 };
}

function isDatabaseError(error: unknown): boolean {
  return error instanceof pg.DatabaseError;
}

/** The error as D1 writes it, which the rest of the gateway knows. */
export function asD1Error(cause: unknown): Error {
  if (!(cause instanceof pg.DatabaseError)) return new Error(`D1_ERROR: database unavailable: ${cause}`, { cause });
  const { code, table, column, constraint, message } = cause;
  if (code === '23505') return new Error(`D1_ERROR: UNIQUE constraint failed: ${table} (${constraint})`, { cause });
  if (code === '23502') return new Error(`D1_ERROR: NOT NULL constraint failed: ${table}.${column}`, { cause });
  return new Error(`D1_ERROR: ${message} (${code})`, { cause });
}

/** Classes of errors that a repetition of the statement gets again: data, constraints, limits of the server. */
const DATA_ERRORS = /^(?:22|23|54)/;

/** True if the server refuses the values of a statement, so that a repetition is refused, too. */
export function isDataError(error: unknown): boolean {
  return error instanceof pg.DatabaseError && DATA_ERRORS.test(error.code ?? '');
}
