import type { Env, PoolState } from '../../env.ts';
import { D1, migrateDatabase } from './d1.ts';
import { Database } from './sqlite.ts';

/** The database of accounts of this process: a file, or PostgreSQL (postgresql/postgres-accounts.ts). */
export interface AccountsStore {
  db: Env['DB'];
  /** For long queries; undefined: reports read the file on their own thread. */
  reports: Env['DB'] | undefined;
  /** Connections of this process; empty: the accounts are in a file. */
  pools(): PoolState[];
  close(): Promise<void>;
}

export interface AccountsFile extends AccountsStore {
  file: Database;
}

export function openAccountsFile(
  path: string,
  migrations: readonly { name: string; statements: readonly string[] }[],
): AccountsFile {
  const file = new Database(path);
  migrateDatabase(file, migrations);
  return {
    file,
    db: new D1(file) as unknown as Env['DB'],
    reports: undefined,
    pools: () => [],
    close: async () => file.close(),
  };
}
