/** The accounts in PostgreSQL, from the start of a gateway to its end. */
import { setTimeout as delay } from 'node:timers/promises';
import { errorText } from '../../../../shared/text/error-text.ts';
import { CommandError } from '../../../command-error.ts';
import type { Env } from '../../../env.ts';
import type { AccountsStore } from '../accounts-store.ts';
import { DatabaseBinding } from './database-binding.ts';
import { MIGRATION_TIMEOUT_MS, migratePostgres } from './migrate-postgres.ts';
import { PostgresD1 } from './postgres-d1.ts';
import { PostgresPool } from './postgres-pool.ts';

/** The oldest version of PostgreSQL with which the gateway is tested. */
export const OLDEST_POSTGRESQL = 15;
const VERSIONS_PER_MAJOR = 10_000;
/** Connections for reports, and the maximum time of a report's query. */
const REPORTS = { most: 2, queryTimeoutMs: 120_000 };

interface PostgresAccountsOptions {
  url: string;
  data: string;
  migrations: readonly { name: string; statements: readonly string[] }[];
  /** Absent: several processes share the database, and their objects are there. */
  onLost?(place: string): void;
}

/** Checks the server and creates missing tables. @throws CommandError that names the server without its password */
export async function preparePostgres(url: string, migrations: PostgresAccountsOptions['migrations']): Promise<void> {
  await withServer(url, async () => {
    await withPool(
      { url, name: 'otela-gateway migration', most: 1, queryTimeoutMs: MIGRATION_TIMEOUT_MS },
      async (pool) => {
        await requireServer(pool);
        await migratePostgres(pool, migrations);
      },
    );
  });
}

/** @throws CommandError that names the server without its password */
export async function withServer<T>(url: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw new CommandError(`PostgreSQL at ${shownUrl(url)} cannot be used: ${errorText(error)}`, { cause: error });
  }
}

/** @throws CommandError that names the server without its password */
export async function openPostgresAccounts(options: PostgresAccountsOptions): Promise<AccountsStore> {
  const { url, data, migrations, onLost } = options;
  await preparePostgres(url, migrations);
  const control = new PostgresPool({ url, name: 'otela-gateway control', most: 1 });
  const binding = onLost && new DatabaseBinding({ connection: control, data, pause: delay, onLost });
  try {
    await withServer(url, async () => binding?.take());
  } catch (error) {
    await control.close();
    throw error;
  }
  const pool = new PostgresPool({ url, name: 'otela-gateway accounts' });
  const reports = new PostgresPool({ url, name: 'otela-gateway reports', ...REPORTS });
  return {
    db: new PostgresD1(pool) as unknown as Env['DB'],
    reports: new PostgresD1(reports) as unknown as Env['DB'],
    pools: () => [control, pool, reports].map((one) => one.state),
    close: async () => {
      await binding?.release();
      await Promise.all([control, pool, reports].map((one) => one.close()));
    },
  };
}

async function withPool<T>(
  options: ConstructorParameters<typeof PostgresPool>[0],
  work: (pool: PostgresPool) => Promise<T>,
): Promise<T> {
  const pool = new PostgresPool(options);
  try {
    return await work(pool);
  } finally {
    await pool.close();
  }
}

/** @throws CommandError if the server is too old, or stores texts in another encoding than UTF-8 */
export async function requireServer(pool: PostgresPool): Promise<void> {
  const asked = "SELECT current_setting('server_version_num'), current_setting('server_encoding')";
  const [row = []] = (await pool.query(asked)).rows;
  const [version, encoding] = row;
  const major = Math.floor(Number(version) / VERSIONS_PER_MAJOR);
  if (major < OLDEST_POSTGRESQL)
    throw new CommandError(`The server is PostgreSQL ${major}; version ${OLDEST_POSTGRESQL} or later is needed.`);
  if (encoding !== 'UTF8')
    throw new CommandError(`The database has the encoding ${encoding}. Create it with: createdb --encoding UTF8 NAME`);
}

/** The URL without user and password, for messages. */
export function shownUrl(url: string): string {
  return url.replace(/\/\/[^/@]*@/, '//').replace(/\?.*$/, '');
}
