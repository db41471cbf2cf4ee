/** Moves the data of a gateway from PostgreSQL to a data directory, for one process without PostgreSQL. */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { writePrivateFile } from '../../../../node/private-file.ts';
import { CommandError } from '../../../command-error.ts';
import { openAccountsFile } from '../accounts-store.ts';
import { type ClusterKey, readClusterKey } from '../cluster/cluster-key.ts';
import { storedSecrets } from '../cluster/shared-secrets.ts';
import { lockDirectory, refuseForeign } from '../data/data-directory.ts';
import { layoutOf, migrateLayout } from '../data/directory-version.ts';
import { makeDirectory } from '../data/make-directory.ts';
import { ACCOUNTS_FILE } from '../data/schema-version.ts';
import { writeWorkerSecrets } from '../issuer/issuer-files.ts';
import { BINDING_FILE, boundDatabase, MOVED, placeOf, SHARED, writeBinding } from '../postgresql/database-binding.ts';
import type { Connection } from '../postgresql/postgres-pool.ts';
import { addAlarms, copyObjectsToDirectory, sharedAlarms, sharedClasses, storedAlarms } from './copy-objects.ts';
import { compareTables, copyTablesToSqlite } from './copy-tables.ts';
import { copyUsageToDirectory, retentionAlarms } from './copy-usage.ts';
import {
  inTransaction,
  type MigrateOptions,
  type Moved,
  readInstallation,
  requireStopped,
} from './migration-transaction.ts';

/** Directory with the copies until the database says that its data was moved. */
const STAGING = 'moving';

/** @throws CommandError */
export async function migrateToDirectory(options: MigrateOptions): Promise<Moved> {
  const { directory, url, keyFile, program } = options;
  const key = keyFile === undefined ? undefined : readClusterKey(keyFile);
  await makeDirectory(directory);
  const path = await realpath(directory);
  await refuseForeign(path);
  const release = lockDirectory(path);
  try {
    layoutOf(path);
    if (existsSync(join(path, ACCOUNTS_FILE)) && boundDatabase(path) === undefined)
      throw new CommandError(`${path} has accounts already. Give --data a new directory.`);
    await requireStopped(url);
    const moved = await inTransaction(url, program.postgresMigrations, (connection) =>
      copyAll(connection, { path, key, program }),
    );
    await takeInUse(path);
    return moved;
  } finally {
    release();
  }
}

interface Target {
  path: string;
  key: ClusterKey | undefined;
  program: MigrateOptions['program'];
}

async function copyAll(connection: Connection, { path, key, program }: Target): Promise<Moved> {
  const installation = await readInstallation(connection);
  if (installation === undefined) throw new CommandError('The database has no data of a gateway.');
  const { id, holder, place } = installation;
  const bound = boundDatabase(path);
  if (bound !== undefined && bound !== id)
    throw new CommandError(`${path} belongs to another database. Give --data a new directory.`);
  if (holder === MOVED) {
    if (place === placeOf(path) && bound === id) return { rows: 0, objects: 0, records: 0, finished: true };
    throw new CommandError(`The data of this database was moved to the directory ${place} before.`);
  }
  requireKey(holder === SHARED, key);
  if (holder !== SHARED && bound === undefined)
    throw new CommandError(`The objects of this gateway are in ${place}. Give that directory with --data.`);
  const staging = join(path, STAGING);
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(join(staging, 'objects'), { recursive: true, mode: 0o700 });
  const rows = await copyAccounts(connection, staging, { key, program });
  const shared = key === undefined ? { objects: 0, records: 0 } : await copyShared(connection, staging, key);
  // Written before the commit: with it, an interrupted command recognizes that its copies are complete.
  if (bound === undefined) writeBinding(path, { installation: id });
  await connection.query('UPDATE gateway_installation SET holder = $1, place = $2', [MOVED, placeOf(path)]);
  return { rows, ...shared, finished: false };
}

function requireKey(isShared: boolean, key: ClusterKey | undefined): void {
  if (isShared === (key !== undefined)) return;
  throw new CommandError(
    isShared
      ? 'The database is shared by several processes. Give the key that they share: --cluster-key.'
      : 'Only the accounts are in this database, so --cluster-key is not needed.',
  );
}

async function copyAccounts(
  connection: Connection,
  staging: string,
  { key, program }: Pick<Target, 'key' | 'program'>,
): Promise<number> {
  const accounts = openAccountsFile(join(staging, ACCOUNTS_FILE), program.migrations);
  try {
    const rows = await copyTablesToSqlite(connection, accounts.file);
    await compareTables(accounts.file, connection);
    // The hours' objects are new and number their batches of totals from 1 again.
    if (key !== undefined) accounts.file.rows('DELETE FROM usage_batches', []);
    return rows;
  } finally {
    await accounts.close();
  }
}

async function copyShared(
  connection: Connection,
  staging: string,
  key: ClusterKey,
): Promise<Pick<Moved, 'objects' | 'records'>> {
  const secrets = await storedSecrets(connection, key);
  if (secrets === undefined) throw new CommandError('The database has no keys of an issuer.');
  writePrivateFile(join(staging, 'admin.key'), `${secrets.adminKey}\n`);
  await writeWorkerSecrets(join(staging, 'issuer'), secrets.issuer);
  const objects = await copyObjectsToDirectory(connection, join(staging, 'objects'));
  const hours = await copyUsageToDirectory(connection, join(staging, 'objects'));
  addAlarms(join(staging, 'objects'), await storedAlarms(connection));
  addAlarms(join(staging, 'objects'), retentionAlarms(hours.keys(), Date.now()));
  return { objects, records: [...hours.values()].reduce((sum, count) => sum + count, 0) };
}

/** Gives the copies their places. If it is interrupted, the next `migrate` continues it. */
async function takeInUse(path: string): Promise<void> {
  const staging = join(path, STAGING);
  const from = (name: string) => join(staging, name);
  if (existsSync(staging)) {
    mkdirSync(join(path, 'issuer'), { recursive: true, mode: 0o700 });
    mkdirSync(join(path, 'objects'), { recursive: true, mode: 0o700 });
    const issuer = existsSync(from('issuer')) ? readdirSync(from('issuer')).map((name) => join('issuer', name)) : [];
    const classes = sharedClasses(from('objects')).map((name) => join('objects', name));
    for (const name of ['admin.key', ...issuer, ...classes, ACCOUNTS_FILE])
      if (existsSync(from(name))) renameSync(from(name), join(path, name));
    addAlarms(join(path, 'objects'), sharedAlarms(from('objects')));
    rmSync(staging, { recursive: true });
  }
  await migrateLayout(path);
  rmSync(join(path, BINDING_FILE), { force: true });
}
