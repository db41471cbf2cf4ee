/**
 * D1's interface on PostgreSQL, as far as the gateway and drizzle use it. One writer at a time, as on D1 and SQLite:
 * the code counts rows in the statement that inserts one, and compares numbers of the audit log, which must therefore
 * become visible in their order.
 */
import type { DrizzleD1Database } from 'drizzle-orm/d1';
import type { SqlFragments } from '../../../accounts/sql-fragments.ts';
import { UnstorableTextError } from '../../../accounts/unstorable-text.ts';
import { PlaceQueue } from './place-queue.ts';
import { postgresQueries } from './postgres-dialect.ts';
import { POSTGRES_FRAGMENTS } from './postgres-fragments.ts';
import {
  asD1Error,
  type Connection,
  isDataError,
  type PostgresPool,
  QUERY_TIMEOUT_MS,
  type Rows,
  STATEMENT_TIMEOUT_MS,
  type Value,
} from './postgres-pool.ts';

type Row = Record<string, Value>;

interface Result {
  success: true;
  results: Row[];
  meta: { changes: number; last_row_id: number; duration: number };
}

/** Number of the lock that a writer of accounts holds. It ends with the transaction. */
export const WRITER_LOCK = 7_391_027;

const BEGIN_WRITE = `BEGIN; SET LOCAL statement_timeout = ${STATEMENT_TIMEOUT_MS};
  SET LOCAL idle_in_transaction_session_timeout = ${STATEMENT_TIMEOUT_MS}; SELECT pg_advisory_xact_lock(${WRITER_LOCK})`;
/** All statements of a batch that only reads see the same rows. */
const BEGIN_READ = 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY';

class Statement {
  readonly #database: PostgresD1;
  readonly text: string;
  readonly bindings: readonly unknown[];

  constructor(database: PostgresD1, text: string, bindings: readonly unknown[] = []) {
    this.#database = database;
    this.text = text;
    this.bindings = bindings;
  }

  bind(...bindings: unknown[]): Statement {
    return new Statement(this.#database, this.text, bindings);
  }

  async all(): Promise<Result> {
    return resultOf(await this.#rows());
  }

  async run(): Promise<Result> {
    return resultOf(await this.#rows());
  }

  async first(column?: string): Promise<Row | Value> {
    const [row] = resultOf(await this.#rows()).results;
    if (row === undefined) return null;
    return column === undefined ? row : (row[column] ?? null);
  }

  async raw(): Promise<Value[][]> {
    return (await this.#rows()).rows;
  }

  async #rows(): Promise<Rows> {
    const [rows] = await this.#database.execute([this]);
    if (rows === undefined) throw new Error('PostgreSQL returned no result');
    return rows;
  }
}

export class PostgresD1 {
  /** See Env.DB. */
  readonly dialect: { queries: DrizzleD1Database; fragments: SqlFragments };
  readonly #pool: Pick<PostgresPool, 'withConnection'>;
  /** Writers of this process wait here for the lock of changes, so that only one has a connection. */
  readonly #writers = new PlaceQueue({ places: 1, stallMs: QUERY_TIMEOUT_MS, isProgress: isDataError });

  constructor(pool: Pick<PostgresPool, 'withConnection'>) {
    this.#pool = pool;
    this.dialect = { queries: postgresQueries(this as unknown as D1Database), fragments: POSTGRES_FRAGMENTS };
  }

  prepare(text: string): Statement {
    return new Statement(this, text);
  }

  /** Runs all statements in one transaction, or none. */
  async batch(statements: readonly Statement[]): Promise<Result[]> {
    return (await this.execute(statements)).map(resultOf);
  }

  withSession(): PostgresD1 {
    return this;
  }

  async execute(statements: readonly Statement[]): Promise<Rows[]> {
    for (const { bindings } of statements) for (const value of bindings) requireStorable(value);
    const isRead = statements.every(({ text }) => reads(text));
    try {
      if (isRead) return await this.#run(statements.length === 1 ? undefined : BEGIN_READ, statements);
      return await this.#writers.withPlace(() => this.#run(BEGIN_WRITE, statements));
    } catch (error) {
      throw asD1Error(error);
    }
  }

  async #run(begin: string | undefined, statements: readonly Statement[]): Promise<Rows[]> {
    return this.#pool.withConnection((connection) => together(connection, begin, statements));
  }
}

async function together(
  connection: Connection,
  begin: string | undefined,
  statements: readonly Statement[],
): Promise<Rows[]> {
  if (begin !== undefined) await connection.query(begin);
  const results: Rows[] = [];
  for (const { text, bindings } of statements) results.push(await connection.query(text, bindings));
  if (begin !== undefined) await connection.query('COMMIT');
  return results;
}

/** Matches U+0000 as JSON writes it. */
const NUL_IN_JSON = /(?<!\\)(?:\\\\)*\\u0000/;

/**
 * PostgreSQL stores no text with U+0000, and cannot read any member of a stored JSON text that contains it. So one such
 * row would make queries fail that read a member of all rows.
 * @throws UnstorableTextError
 */
export function requireStorable(value: unknown): void {
  if (typeof value === 'string' && (value.includes('\0') || NUL_IN_JSON.test(value))) throw new UnstorableTextError();
}

/** True if a statement that drizzle built changes nothing. */
function reads(text: string): boolean {
  return /^\s*(?:select|with)\b/i.test(text) && !/\b(?:insert|update|delete|nextval)\b/i.test(text);
}

function resultOf({ columns, rows, count }: Rows): Result {
  const results = rows.map((row) => Object.fromEntries(row.map((value, at) => [columns[at] ?? '', value])));
  return { success: true, results, meta: { changes: count, last_row_id: 0, duration: 0 } };
}
