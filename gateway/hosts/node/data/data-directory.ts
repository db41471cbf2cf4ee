/**
 * The directory in which a gateway keeps everything:
 *
 *     layout.json       the layout's version; see directory-version.ts
 *     admin.key         the first operator's key, created at the first start (0600)
 *     issuer/           the keys that admit nodes; see issuer-files.ts
 *     acme/             the certificate of `serve --domain`, and the key of its account
 *     accounts.sqlite   accounts and settings
 *     files/            uploads and batch results, created on first use
 *     objects/          a directory per class with a file per object; alarms.sqlite has all alarms
 *     processes/        addresses and tunnels of several processes; see serve/directory-process.ts
 *     lock              held by the gateway that uses this directory
 */
import { constants } from 'node:fs';
import { access, chmod, mkdir, readdir, readFile, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { createPrivateFile } from '../../../../node/private-file.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { KEY_PREFIX, newSecret, sha256Hex } from '../../../accounts/secrets.ts';
import { CommandError } from '../../../command-error.ts';
import { layoutOf, migrateLayout } from './directory-version.ts';
import { makeDirectory } from './make-directory.ts';
import { refuseUnreadableFile } from './refuse-damaged.ts';
import { ACCOUNTS_FILE, appliedMigrations, refuseNewerSchema } from './schema-version.ts';

export interface DataDirectory {
  /** Absolute path without symbolic links. */
  path: string;
  adminKey: string;
  /** SHA-256 of the operator's first key in hex; the gateway gets only this. */
  adminKeyHash: string;
  issuer: string;
  objects: string;
  /** Path of accounts.sqlite. */
  accounts: string;
  /** Releases the lock, so that another gateway can use the directory. The end of the process has the same effect. */
  release(): void;
}

const SQLITE_BUSY = 5;

/** An operator's error, not a bug. Printed without a stack trace. */
class DataDirectoryError extends CommandError {}

/**
 * Opens the directory and creates what is missing.
 * @param migrations those that this program knows
 * @throws CommandError if the directory must not be used
 */
export async function openDataDirectory(dir: string, migrations: readonly string[]): Promise<DataDirectory> {
  await makeDirectory(dir);
  const path = await realpath(dir);
  await refuseForeign(path);
  await chmod(path, 0o700);
  const release = lockDirectory(path);
  try {
    layoutOf(path);
    refuseUnreadableFile(path);
    refuseNewerSchema(path, migrations, appliedMigrations(join(path, ACCOUNTS_FILE)));
    await migrateLayout(path);
  } catch (error) {
    release();
    throw error;
  }
  const objects = join(path, 'objects');
  await mkdir(objects, { recursive: true, mode: 0o700 });
  const adminKey = await readAdminKey(join(path, 'admin.key'));
  const issuer = join(path, 'issuer');
  return {
    path,
    adminKey,
    adminKeyHash: sha256Hex(adminKey),
    issuer,
    accounts: join(path, ACCOUNTS_FILE),
    objects,
    release,
  };
}

/** Entries that a directory may have before its first start. */
const BEFORE_FIRST_START: ReadonlySet<string> = new Set(['lost+found', 'issuer', 'acme', 'processes']);

/**
 * Refuses a directory with other files. A mistyped --data must not take over /tmp, nor spread files over a home
 * directory.
 */
export async function refuseForeign(path: string): Promise<void> {
  const entries = (await readdir(path)).filter((name) => !BEFORE_FIRST_START.has(name));
  if (entries.length === 0 || entries.includes('lock')) return;
  throw new DataDirectoryError(
    `${path} is not empty and contains no data of a gateway. Give --data another directory.`,
  );
}

/**
 * Locks the directory with a lock of SQLite on a separate file. The kernel releases it with the process, even after
 * `kill -9`. A pid file would need a guess whether the process still runs, and a socket is not visible from another
 * network namespace.
 * @throws DataDirectoryError if another process has the lock
 */
export function lockDirectory(path: string): () => void {
  const database = new DatabaseSync(join(path, 'lock'));
  try {
    // The journal is in memory, because otherwise SQLite would need disk space for the lock.
    database.exec('PRAGMA journal_mode = MEMORY; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (cause) {
    database.close();
    if (isErrno(cause, SQLITE_BUSY)) throw new DataDirectoryError(`Another gateway uses ${path}.`, { cause });
    throw new DataDirectoryError(`${path} cannot be locked: ${errorText(cause)}`, {
      cause,
    });
  }
  return () => database.close();
}

function isErrno(error: unknown, code: number): boolean {
  return error instanceof Error && 'errcode' in error && error.errcode === code;
}

/** Format of `admin.key`. */
export const ADMIN_KEY = /^\S{16,256}$/;

async function readAdminKey(file: string): Promise<string> {
  const exists = await access(file, constants.F_OK).then(
    () => true,
    () => false,
  );
  if (!exists) createPrivateFile(file, `${newSecret(KEY_PREFIX).plaintext}\n`);
  const key = (await readFile(file, 'utf8')).trim();
  if (!ADMIN_KEY.test(key)) throw new DataDirectoryError(`${file} contains no key. Remove the file to get a new key.`);
  await chmod(file, 0o600);
  return key;
}
