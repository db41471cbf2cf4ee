/** The one transaction in which a move reads or writes the database. */
import { setTimeout as delay } from 'node:timers/promises';
import { CommandError } from '../../../command-error.ts';
import { MOVED, SHARED } from '../postgresql/database-binding.ts';
import { MIGRATION_TIMEOUT_MS } from '../postgresql/migrate-postgres.ts';
import { preparePostgres, withServer } from '../postgresql/postgres-accounts.ts';
import { WRITER_LOCK } from '../postgresql/postgres-d1.ts';
import { type Connection, PostgresPool } from '../postgresql/postgres-pool.ts';
import type { ProgramFiles } from '../serve/program-files.ts';

export interface MigrateOptions {
  directory: string;
  url: string;
  /** File with the key of several processes. Undefined: only the accounts are in PostgreSQL. */
  keyFile: string | undefined;
  program: Pick<ProgramFiles, 'migrations' | 'postgresMigrations'>;
}

export interface Moved {
  /** Rows of accounts. */
  rows: number;
  objects: number;
  /** Usage records of single requests. */
  records: number;
  /** True if an interrupted move was finished, which had copied everything before. */
  finished: boolean;
}

/** Longer than the interval of heartbeats of a process that runs: see cluster/process-table.ts. */
const SILENT_MS = 6_000;

const BEGIN = `BEGIN; SET LOCAL statement_timeout = ${MIGRATION_TIMEOUT_MS};
  SET LOCAL idle_in_transaction_session_timeout = ${MIGRATION_TIMEOUT_MS};
  SELECT pg_advisory_xact_lock(${WRITER_LOCK})`;
/** No process can join the installation meanwhile. */
const LOCK = 'LOCK TABLE gateway_installation IN EXCLUSIVE MODE';

/** Commits if `work` resolves. @throws CommandError that names the server without its password */
export async function inTransaction<T>(
  url: string,
  migrations: Parameters<typeof preparePostgres>[1],
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  await preparePostgres(url, migrations);
  const options = { url, name: 'otela-gateway migrate', most: 1, queryTimeoutMs: MIGRATION_TIMEOUT_MS };
  const pool = new PostgresPool(options);
  try {
    return await withServer(url, () =>
      pool.withConnection(async (connection) => {
        await connection.query(BEGIN);
        await connection.query(LOCK);
        const result = await work(connection);
        await connection.query('COMMIT');
        return result;
      }),
    );
  } finally {
    await pool.close();
  }
}

interface Installation {
  id: string;
  holder: string;
  place: string;
}

export async function readInstallation(connection: Connection): Promise<Installation | undefined> {
  const [row] = (await connection.query('SELECT id, holder, place FROM gateway_installation')).rows;
  return row === undefined ? undefined : { id: String(row[0]), holder: String(row[1]), place: String(row[2]) };
}

const RUNNING = `SELECT holder AS name, beat FROM gateway_installation WHERE NOT "left" AND holder NOT IN ($1, $2)
  UNION ALL SELECT address, beat FROM gateway_processes WHERE ended IS NULL ORDER BY 1`;

/**
 * Waits until a process that was killed would have sent a heartbeat.
 * @throws CommandError if a process uses the database
 */
export async function requireStopped(url: string): Promise<void> {
  const pool = new PostgresPool({ url, name: 'otela-gateway migrate', most: 1 });
  try {
    const { rows } = await pool.query(RUNNING, [SHARED, MOVED]);
    if (rows.length === 0) return;
    await delay(SILENT_MS);
    const beats = new Map(rows.map(([name, beat]) => [name, beat]));
    const running = (await pool.query(RUNNING, [SHARED, MOVED])).rows.filter(
      ([name, beat]) => beats.get(name ?? null) !== beat,
    );
    if (running.length === 0) return;
    throw new CommandError(`Stop all gateway processes first. ${running.length} of them use the database.`);
  } finally {
    await pool.close();
  }
}
