/**
 * D1's interface on an SQLite file, as far as the gateway and drizzle use it; see test/gateway/accounts/d1-contract.ts.
 */
import type { Database, SqliteRow, SqliteValue } from './sqlite.ts';

interface Meta {
  changes: number;
  last_row_id: number;
  duration: number;
}

interface Result {
  success: true;
  results: SqliteRow[];
  meta: Meta;
}

/** Names of SQLite's result codes as D1 writes them. */
const CODES: Readonly<Record<number, string>> = {
  1: 'SQLITE_ERROR',
  5: 'SQLITE_BUSY',
  8: 'SQLITE_READONLY',
  10: 'SQLITE_IOERR',
  11: 'SQLITE_CORRUPT',
  13: 'SQLITE_FULL',
  19: 'SQLITE_CONSTRAINT',
  275: 'SQLITE_CONSTRAINT_CHECK',
  787: 'SQLITE_CONSTRAINT_FOREIGNKEY',
  1299: 'SQLITE_CONSTRAINT_NOTNULL',
  1555: 'SQLITE_CONSTRAINT_PRIMARYKEY',
  2067: 'SQLITE_CONSTRAINT_UNIQUE',
};
const PRIMARY_CODE = 0xff;

class Statement {
  readonly #database: Database;
  readonly text: string;
  readonly bindings: readonly unknown[];

  constructor(database: Database, text: string, bindings: readonly unknown[] = []) {
    this.#database = database;
    this.text = text;
    this.bindings = bindings;
  }

  bind(...bindings: unknown[]): Statement {
    return new Statement(this.#database, this.text, bindings);
  }

  async all(): Promise<Result> {
    return asD1Error(() => this.execute());
  }

  async run(): Promise<Result> {
    return asD1Error(() => this.execute());
  }

  async first(column?: string): Promise<SqliteRow | SqliteValue> {
    const [row] = (await this.all()).results;
    if (row === undefined) return null;
    if (column === undefined) return row;
    const value = row[column];
    if (value === undefined) throw new Error(`D1_COLUMN_NOTFOUND: ${column}`);
    return value;
  }

  async raw(options: { columnNames?: boolean } = {}): Promise<SqliteValue[][]> {
    const { columns, rows } = asD1Error(() => this.#database.lists(this.text, this.bindings));
    const plain = rows.map((row) => row.map(bytes));
    return options.columnNames === true ? [columns, ...plain] : plain;
  }

  execute(): Result {
    refuseTransaction(this.text);
    const before = this.#database.counters();
    const results = this.#database.rows(this.text, this.bindings).map(plainRow);
    const after = this.#database.counters();
    return {
      success: true,
      results,
      meta: { changes: after.total - before.total, last_row_id: after.last, duration: 0 },
    };
  }
}

/** The database of accounts and settings. */
export class D1 {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  prepare(text: string): Statement {
    return new Statement(this.#database, text);
  }

  /** Runs all statements in one transaction, or none. */
  async batch(statements: readonly Statement[]): Promise<Result[]> {
    return asD1Error(() => this.#database.together(() => statements.map((one) => one.execute())));
  }

  /** Runs a text with one statement per line. */
  async exec(text: string): Promise<{ count: number; duration: number }> {
    const lines = text.split('\n').filter((line) => line.trim() !== '');
    asD1Error(() => {
      for (const line of lines) this.#database.script(line);
    });
    return { count: lines.length, duration: 0 };
  }

  /** Returns this database. D1's sessions exist because its replicas may be out of date; here there are no replicas. */
  withSession(): D1 {
    return this;
  }
}

/**
 * Applies missing migrations, each file completely or not at all. Applied migrations are listed in the same table that
 * wrangler uses.
 */
export function migrateDatabase(
  database: Database,
  migrations: readonly { name: string; statements: readonly string[] }[],
) {
  database.script(`CREATE TABLE IF NOT EXISTS d1_migrations (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE,
    applied_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL)`);
  const done = new Set(database.rows('SELECT name FROM d1_migrations', []).map(({ name }) => name));
  for (const { name, statements } of migrations.filter((one) => !done.has(one.name))) {
    database.together(() => {
      for (const statement of statements) database.script(statement);
      database.rows('INSERT INTO d1_migrations (name) VALUES (?)', [name]);
    });
  }
}

/**
 * Refuses statements that begin a transaction, because D1 has batches instead. A transaction that stays open would
 * block all other writers.
 */
function refuseTransaction(text: string): void {
  if (/^\s*(?:BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)\b/i.test(text))
    throw new Error('D1_ERROR: transactions are batches here');
}

function asD1Error<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    if (!(cause instanceof Error) || !('errcode' in cause)) throw cause;
    const code = Number(cause.errcode);
    const primary = CODES[code & PRIMARY_CODE] ?? `SQLITE_${code & PRIMARY_CODE}`;
    const extended = code > PRIMARY_CODE ? ` (extended: ${CODES[code] ?? code})` : '';
    throw new Error(`D1_ERROR: ${cause.message}: ${primary}${extended}`, { cause });
  }
}

/** Converts blobs to lists of numbers, as D1 returns them. */
function bytes(value: SqliteValue): SqliteValue {
  return value instanceof ArrayBuffer ? ([...new Uint8Array(value)] as unknown as SqliteValue) : value;
}

function plainRow(row: SqliteRow): SqliteRow {
  const plain: SqliteRow = {};
  for (const name in row) plain[name] = bytes(row[name] ?? null);
  return plain;
}
