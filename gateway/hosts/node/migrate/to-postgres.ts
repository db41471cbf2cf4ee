/** Moves a data directory to PostgreSQL, in one transaction. */
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { CommandError } from '../../../command-error.ts';
import { nowS } from '../../../platform/unix-time.ts';
import { openAccountsFile } from '../accounts-store.ts';
import { type ClusterKey, readClusterKey } from '../cluster/cluster-key.ts';
import { newProcessNumber } from '../cluster/join-installation.ts';
import { storeSecrets } from '../cluster/shared-secrets.ts';
import { type DataDirectory, openDataDirectory } from '../data/data-directory.ts';
import { ACCOUNTS_FILE } from '../data/schema-version.ts';
import { openIssuer, workerSecrets } from '../issuer/issuer-files.ts';
import {
  BINDING_FILE,
  boundDatabase,
  newInstallation,
  placeOf,
  SHARED,
  writeBinding,
} from '../postgresql/database-binding.ts';
import type { Connection } from '../postgresql/postgres-pool.ts';
import type { Database } from '../sqlite.ts';
import { copyObjectsToPostgres, forgetSharedAlarms, sharedClasses } from './copy-objects.ts';
import { compareTables, copyTablesToPostgres, requireEmptyTables } from './copy-tables.ts';
import { copyUsageToPostgres } from './copy-usage.ts';
import { inTransaction, type MigrateOptions, type Moved, readInstallation } from './migration-transaction.ts';

/** Directory with the files that are in PostgreSQL now. The operator may delete it. */
const MOVED_DIRECTORY = 'moved';

/**
 * Everything is in PostgreSQL, or nothing: an interrupted move begins again, or only finishes the directory.
 * @throws CommandError
 */
export async function migrateToPostgres(options: MigrateOptions): Promise<Moved> {
  const { directory, url, keyFile, program } = options;
  const key = keyFile === undefined ? undefined : readClusterKey(keyFile);
  if (!existsSync(join(directory, ACCOUNTS_FILE))) throw nothingToMove(directory);
  const known = program.migrations.map(({ name }) => name);
  const data = await openDataDirectory(directory, known);
  try {
    const earlier = await finishEarlierMove(data.path, options);
    if (earlier !== undefined) return earlier;
    const accounts = openAccountsFile(data.accounts, program.migrations);
    let moved: Moved;
    try {
      moved = await inTransaction(url, program.postgresMigrations, (connection) =>
        copyAll(connection, { data, accounts: accounts.file, key }),
      );
    } finally {
      await accounts.close();
    }
    setAside(data.path, key !== undefined);
    return moved;
  } finally {
    data.release();
  }
}

function nothingToMove(directory: string): CommandError {
  if (existsSync(join(directory, BINDING_FILE)))
    return new CommandError(`The accounts of ${directory} are in PostgreSQL already.`);
  return new CommandError(`${directory} contains no accounts of a gateway; give its data directory with --data`);
}

/**
 * If an earlier move was interrupted, it either stored everything or nothing. Returns undefined if the move must begin.
 */
async function finishEarlierMove(path: string, { url, program }: MigrateOptions): Promise<Moved | undefined> {
  const bound = boundDatabase(path);
  if (bound === undefined) return undefined;
  const stored = await inTransaction(url, program.postgresMigrations, readInstallation);
  if (stored?.id !== bound) {
    rmSync(join(path, BINDING_FILE));
    return undefined;
  }
  setAside(path, stored.holder === SHARED);
  return { rows: 0, objects: 0, records: 0, finished: true };
}

interface Source {
  data: DataDirectory;
  accounts: Database;
  key: ClusterKey | undefined;
}

/** @throws CommandError if the database is not new, or a copy differs from the original */
async function copyAll(connection: Connection, { data, accounts, key }: Source): Promise<Moved> {
  if ((await readInstallation(connection)) !== undefined)
    throw new CommandError('The database already belongs to a gateway. Give a new database.');
  await requireEmptyTables(connection);
  const rows = await copyTablesToPostgres(accounts, connection);
  await compareTables(accounts, connection);
  const shared = key === undefined ? { objects: 0, records: 0 } : await copyShared(connection, data, key);
  const installation = newInstallation();
  const holder = key === undefined ? randomUUID() : SHARED;
  const place = key === undefined ? placeOf(data.path) : SHARED;
  const insert = 'INSERT INTO gateway_installation (id, place, holder, "left") VALUES ($1, $2, $3, true)';
  await connection.query(insert, [installation, place, holder]);
  const process = key === undefined ? {} : { process: await newProcessNumber(connection) };
  // Written before the commit: from here on, `serve` refuses the directory until the move is finished.
  writeBinding(data.path, { installation, ...process });
  return { rows, ...shared, finished: false };
}

async function copyShared(
  connection: Connection,
  data: DataDirectory,
  key: ClusterKey,
): Promise<Pick<Moved, 'objects' | 'records'>> {
  const scratch = mkdtempSync(join(data.path, 'scratch-'));
  try {
    const issuer = workerSecrets(await openIssuer(data.issuer, nowS()));
    await storeSecrets(connection, key, { adminKey: data.adminKey, issuer });
    const objects = await copyObjectsToPostgres(data.objects, scratch, connection);
    return { objects, records: await copyUsageToPostgres(data.objects, connection) };
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

/** Moves the files away that are in PostgreSQL now. The accounts are last: their absence means that all is done. */
function setAside(path: string, isShared: boolean): void {
  const aside = join(path, MOVED_DIRECTORY);
  const objects = join(path, 'objects');
  mkdirSync(join(aside, 'objects'), { recursive: true, mode: 0o700 });
  if (isShared) {
    forgetSharedAlarms(objects);
    for (const name of sharedClasses(objects)) replace(join(objects, name), join(aside, 'objects', name));
  }
  replace(join(path, ACCOUNTS_FILE), join(aside, ACCOUNTS_FILE));
}

/** Also removes what an earlier move left at the destination. */
function replace(from: string, to: string): void {
  rmSync(to, { recursive: true, force: true });
  renameSync(from, to);
}
