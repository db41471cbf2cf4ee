/**
 * The one directory in which a gateway keeps everything:
 *
 *     admin.key    the first operator's key, made at the first start (0600)
 *     issuer/      the keys that admit nodes: see issuer-files.ts
 *     d1/          accounts and settings          objects/   Durable Objects
 *     accounts/    the same of a gateway without workerd, and node-objects/ its objects: a directory has the ones or the others
 *     lock         held by the gateway that uses this directory
 *     run/         made anew by each start: workerd's configuration, socket and process id
 */
import { constants } from 'node:fs';
import { access, chmod, link, mkdir, open, readdir, readFile, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { KEY_PREFIX, newSecret, sha256Hex } from '../../accounts/secrets.ts';
import { CommandError } from './command.ts';
import { refuseUnreadable } from './damage.ts';
import { appliedMigrations, refuseNewer } from './schema-version.ts';

export interface DataDirectory {
  /** Absolute, without links. */
  path: string;
  adminKey: string;
  /** What the Worker gets to know of the key: SHA-256, hex. */
  adminKeyHash: string;
  issuer: string;
  objects: string;
  d1: string;
  /** Undefined where workerd keeps the data. */
  node?: { accounts: string; objects: string };
  run: string;
  /** Lets another gateway use the directory. Ending, in whatever way, does the same. */
  release(): void;
}

/** Of the operator's making, not ours: told without a stack. */
class DataDirectoryError extends CommandError {}

/**
 * Opens the directory, making what is missing.
 * @param migrations those that this program knows
 * @throws CommandError where it must not be used
 */
export async function openDataDirectory(
  dir: string,
  migrations: readonly string[],
  runtime: Runtime = 'workerd',
): Promise<DataDirectory> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const path = await realpath(dir);
  await refuseForeign(path);
  await chmod(path, 0o700);
  const release = lockDirectory(path);
  try {
    await refuseOther(path, runtime);
    refuseUnreadable(path);
    refuseNewer(path, migrations, appliedMigrations(join(path, 'd1')));
  } catch (error) {
    release();
    throw error;
  }
  const [objects, d1, run] = [join(path, 'objects'), join(path, 'd1'), join(path, 'run')];
  const node =
    runtime === 'node' ? { accounts: join(path, 'accounts'), objects: join(path, 'node-objects') } : undefined;
  const kept = node === undefined ? [objects, d1] : [node.accounts, node.objects];
  await Promise.all([...kept, run].map((made) => mkdir(made, { recursive: true, mode: 0o700 })));
  const adminKey = await readAdminKey(join(path, 'admin.key'));
  const issuer = join(path, 'issuer');
  return {
    path,
    adminKey,
    adminKeyHash: sha256Hex(adminKey),
    issuer,
    objects,
    d1,
    run,
    release,
    ...(node && { node }),
  };
}

/** What runs the gateway's code. */
export type Runtime = 'workerd' | 'node';

/** The two keep their data in different forms. Nothing is changed in a directory of the other one. */
async function refuseOther(path: string, runtime: Runtime): Promise<void> {
  const other = runtime === 'node' ? 'd1' : 'accounts';
  const entries = await readdir(join(path, other)).catch(() => []);
  if (entries.length === 0) return;
  const [made, flag] = runtime === 'node' ? ['workerd', 'workerd'] : ['one Node process', 'node'];
  throw new DataDirectoryError(
    `${path} holds the data of a gateway that ran on ${made}. Start it with --runtime ${flag}, or give --data another directory.`,
  );
}

/** A mistyped --data must not lock everybody out of /tmp, nor sprinkle a home directory. */
async function refuseForeign(path: string): Promise<void> {
  const entries = (await readdir(path)).filter((name) => name !== 'lost+found' && name !== 'issuer');
  if (entries.length === 0 || entries.includes('lock')) return;
  throw new DataDirectoryError(`${path} is not empty and holds no gateway's data. Give --data a directory of its own.`);
}

/**
 * A lock that the kernel lets go with the process, `kill -9` included: SQLite's, on a file of its own. A pid file alone would
 * need a guess, and a socket would not be seen from another network namespace. @throws DataDirectoryError where another has it
 */
export function lockDirectory(path: string): () => void {
  const database = new DatabaseSync(join(path, 'lock'));
  try {
    database.exec('PRAGMA journal_mode = OFF; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (cause) {
    database.close();
    throw new DataDirectoryError(`Another gateway uses ${path}.`, { cause });
  }
  return () => database.close();
}

/** What `admin.key` holds. */
export const ADMIN_KEY = /^\S{16,256}$/;

async function readAdminKey(file: string): Promise<string> {
  const exists = await access(file, constants.F_OK).then(
    () => true,
    () => false,
  );
  if (!exists) await writeOnce(file, `${newSecret(KEY_PREFIX).plaintext}\n`);
  const key = (await readFile(file, 'utf8')).trim();
  if (!ADMIN_KEY.test(key)) throw new DataDirectoryError(`${file} holds no key. Remove it to get a new one.`);
  await chmod(file, 0o600);
  return key;
}

/** Under its own name only when complete and on disk: a crash in between must not leave half a key. */
async function writeOnce(file: string, text: string): Promise<void> {
  const unfinished = `${file}.new`;
  await rm(unfinished, { force: true });
  const handle = await open(unfinished, 'wx', 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await link(unfinished, file);
  await rm(unfinished);
}
