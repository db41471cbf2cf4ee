/** Copies the files of a data directory while a gateway writes to them. */
import { existsSync, lstatSync, readFileSync } from 'node:fs';
import { copyFile, mkdir, readdir, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { errorText } from '../../../../shared/text/error-text.ts';
import { CommandError } from '../../../command-error.ts';
import { LAYOUT_FILE } from '../data/directory-version.ts';
import { ACCOUNTS_FILE } from '../data/schema-version.ts';
import { ISSUER_FILES } from '../issuer/issuer-files.ts';
import { BACKUP_PATH_PATTERN } from './manifest.ts';

/** Maximum databases that are held in a transaction together, if the limit of open files allows it. */
const SNAPSHOTS_MAX = 1_000;
/** Descriptors that one open database needs: for the file, its write-ahead log, and the index of the log. */
const DESCRIPTORS_EACH = 3;
/** Descriptors that are left for Node.js, and for the copy that is being written or checked. */
const DESCRIPTORS_SPARE = 50;
/** Assumed limit of open files if the system does not report it; most systems allow this. */
const DESCRIPTORS_GUESS = 256;
/** How long to wait for a lock, which the first transaction of a new database may hold. */
const BUSY_MS = 5_000;
/** Number of pages to copy in one step: all. If other processes wrote between two steps, the copy would start again. */
const ALL_PAGES = 2 ** 31 - 1;
/**
 * Maximum number of times that the keys are read until two reads are equal. Reads differ during a rotation, which
 * replaces the files one after another within milliseconds.
 */
const UNCHANGED_TRIES = 20;
const UNCHANGED_MS = 50;

/**
 * Order in which databases are copied. Data moves from earlier databases of this list to later ones, and is sent again
 * until it is acknowledged. So data that moves during the backup is in at least one copy. Records go from the objects
 * of nodes and batches to the hour's object, and then to the totals in the accounts. The accounts also contain the join
 * tokens to which the registry's sessions refer.
 */
const ORDER = ['objects/TUNNEL/', 'objects/REGISTRY/', 'objects/BATCH/', 'objects/', ACCOUNTS_FILE];

/** Returns how many databases may be held together. Node.js has already raised the soft limit to the hard one. */
export function concurrentCopiesMax(): number {
  const openMax = /^Max open files +(\S+)/m.exec(limits())?.[1] ?? DESCRIPTORS_GUESS;
  const open = openMax === 'unlimited' ? Number.POSITIVE_INFINITY : Number(openMax);
  return Math.max(1, Math.min(SNAPSHOTS_MAX, Math.floor((open - DESCRIPTORS_SPARE) / DESCRIPTORS_EACH)));
}

/** Reads the process's limits, see proc(5); empty on systems other than Linux. */
function limits(): string {
  try {
    return readFileSync('/proc/self/limits', 'utf8');
  } catch {
    return '';
  }
}

/**
 * Returns the paths of the databases, relative to `data`, in the order in which they must be copied.
 * @throws CommandError
 */
export async function databasesOf(data: string, atOnce: number): Promise<string[]> {
  const entries = await readdir(join(data, 'objects'), { recursive: true, withFileTypes: true }).catch(nothingThere);
  const found = entries
    .filter((entry) => entry.isFile() && entry.name.endsWith('.sqlite'))
    .map((entry) => join(entry.parentPath, entry.name).slice(data.length + 1));
  if (existsSync(join(data, ACCOUNTS_FILE))) found.push(ACCOUNTS_FILE);
  const odd = found.find((path) => !BACKUP_PATH_PATTERN.test(path));
  if (odd !== undefined)
    throw new CommandError(`${join(data, odd)} is not a database of a gateway: move it away, then back up again`);
  const rank = (path: string) => ORDER.findIndex((start) => path.startsWith(start));
  const times = new Map(
    await Promise.all(found.map(async (path) => [path, await changedAt(join(data, path))] as const)),
  );
  const newestFirst = found.sort((a, b) => (times.get(b) ?? 0) - (times.get(a) ?? 0));
  // The databases with the newest writes are in the first group, so that their copies show the same moment. Idle
  // databases may follow in further groups.
  const lots = Array.from({ length: Math.ceil(found.length / atOnce) }, (_, n) =>
    newestFirst.slice(n * atOnce, (n + 1) * atOnce).sort((a, b) => rank(a) - rank(b)),
  );
  return lots.flat();
}

function nothingThere(error: unknown): never[] {
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
  throw new CommandError(errorText(error), { cause: error });
}

/** Time of the last write; milliseconds since the epoch. New data is in the log beside the file. */
async function changedAt(file: string): Promise<number> {
  const times = await Promise.all(['', '-wal'].map((end) => stat(file + end).catch(() => undefined)));
  return Math.max(0, ...times.map((time) => time?.mtimeMs ?? 0));
}

/**
 * Copies `paths` from `data` to `to` in groups. Each copy shows the moment when its transaction started; within a group
 * these moments are milliseconds apart. Resolves to the copied paths: an object that is deleted meanwhile is omitted.
 */
export async function copyDatabases(
  data: string,
  paths: readonly string[],
  to: string,
  atOnce: number,
): Promise<string[]> {
  const copied: string[] = [];
  for (let at = 0; at < paths.length; at += atOnce) {
    const held: { path: string; database: DatabaseSync }[] = [];
    try {
      for (const path of paths.slice(at, at + atOnce)) {
        const database = hold(join(data, path));
        if (database !== undefined) held.push({ path, database });
      }
      for (const { path, database } of held) {
        const target = join(to, path);
        await mkdir(dirname(target), { recursive: true, mode: 0o700 });
        await backup(database, target, { rate: ALL_PAGES });
        refuseDamaged(target, path);
        copied.push(path);
      }
    } finally {
      for (const { database } of held) database.close();
    }
  }
  return copied;
}

/**
 * Opens the database in a transaction that sees its current state. Undefined if the database was deleted, or is just
 * being created.
 */
function hold(file: string): DatabaseSync | undefined {
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(file, { readOnly: true, timeout: BUSY_MS });
    // The process that creates the file is about to enable the write-ahead log, which needs exclusive access. A
    // transaction here would block the gateway.
    if (database.prepare('PRAGMA journal_mode').get()?.journal_mode !== 'wal') {
      database.close();
      return undefined;
    }
    database.exec('BEGIN');
    database.prepare('SELECT count(*) FROM sqlite_master').get();
    return database;
  } catch (error) {
    database?.close();
    // The file itself is checked, because SQLite reports "unable to open" (14) also if descriptors or rights are
    // missing.
    if (lstatSync(file, { throwIfNoEntry: false }) === undefined) return undefined;
    throw new CommandError(`${file}: ${errorText(error)}`, { cause: error });
  }
}

/** Checks a copy, so that damage is found while the original can still be repaired. @throws CommandError */
function refuseDamaged(file: string, path: string): void {
  const database = new DatabaseSync(file, { readOnly: true });
  try {
    const [row] = database.prepare('PRAGMA quick_check(1)').all();
    if (row?.quick_check !== 'ok') throw new CommandError(`${path} is damaged: ${String(row?.quick_check)}`);
  } finally {
    database.close();
  }
}

/**
 * Copies the keys and the version of the data directory as of one moment, because a rotation replaces several keys one
 * after the other. Resolves to their paths.
 */
export async function copyKeys(data: string, to: string): Promise<string[]> {
  for (let n = 0; n < UNCHANGED_TRIES; n++) {
    const before = await keysOf(data);
    await mkdir(join(to, 'issuer'), { recursive: true, mode: 0o700 });
    for (const path of before.keys()) await copyFile(join(data, path), join(to, path));
    const after = await keysOf(data);
    const still = before.size === after.size && [...before].every(([path, text]) => after.get(path) === text);
    if (still) return [...before.keys()];
    await delay(UNCHANGED_MS);
  }
  throw new CommandError('the issuer’s keys keep changing: is `issuer rotate` running?');
}

async function keysOf(data: string): Promise<Map<string, string>> {
  const names = await readdir(join(data, 'issuer')).catch(nothingThere);
  // Other files, such as an editor's copy of a key, are skipped, because restore would refuse them.
  const paths = [
    LAYOUT_FILE,
    'admin.key',
    ...names.filter((name) => ISSUER_FILES.has(name)).map((name) => `issuer/${name}`),
  ];
  return new Map(
    await Promise.all(paths.map(async (path) => [path, await readFile(join(data, path), 'utf8')] as const)),
  );
}
