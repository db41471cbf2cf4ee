/** `otela-gateway restore`: creates a data directory from a backup. */

import { createReadStream, createWriteStream, existsSync, readdirSync } from 'node:fs';
import { mkdir, open, readdir, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import type { ReadEntry } from 'tar';
import { TarReader } from '../../../../node/tar-reader.ts';
import { readTextAtMost } from '../../../../shared/collections/read-at-most.ts';
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../../../shared/command-line/index.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { CommandError } from '../../../command-error.ts';
import { lockDirectory } from '../data/data-directory.ts';
import { LAYOUT_FILE, refuseNewerLayout } from '../data/directory-version.ts';
import { refuseFollower } from '../data/former-followers.ts';
import { makeDirectory } from '../data/make-directory.ts';
import { ACCOUNTS_FILE, refuseNewerSchema } from '../data/schema-version.ts';
import { Alarms } from '../object-alarms.ts';
import { objectName } from '../object-file-name.ts';
import { loadManifest } from '../serve/program-files.ts';
import { Database } from '../sqlite.ts';
import { advanceCounters } from './advance-counters.ts';
import {
  BACKUP_MANIFEST_MAX_BYTES,
  type BackupManifest,
  backupManifestSchema,
  MANIFEST,
  manifestForm,
  sha256Of,
  WORKERD_FORM,
} from './manifest.ts';

/**
 * Sets an alarm that fires immediately for every object without an alarm. Alarms are in a separate file, so a backup
 * may miss both an alarm that fired while the backup was made, and the work that it did in its object's file. Objects
 * tolerate additional alarms. `objects`: a directory that no gateway uses.
 */
export function scheduleAllAlarms(objects: string): void {
  if (!existsSync(objects)) return;
  const alarms = new Alarms(new Database(join(objects, 'alarms.sqlite')), async () => {});
  const now = Date.now();
  try {
    for (const entry of readdirSync(objects, { withFileTypes: true })) {
      if (!entry.isDirectory()) continue;
      const names = readdirSync(join(objects, entry.name)).map(objectName);
      for (const name of names) {
        if (name === undefined) continue;
        const alarm = alarms.of(entry.name, name);
        if (alarm.get() === null) alarm.set(now);
      }
    }
  } finally {
    alarms.close();
  }
}

const FLAGS = {
  data: { default: './data', value: 'DIR', takes: 'directory', help: 'a new or empty directory' },
  ...JSON_FLAG,
} as const satisfies Flags;

export const RESTORE_COMMAND: Command = {
  summary: 'create a data directory from a backup',
  examples: `--data DIR FILE

  otela-gateway restore --data ./data otela-2026-11-22.tar.gz && otela-gateway serve --data ./data

Refuses a directory that is not empty, a damaged backup, and a backup from a newer otela-gateway. Changes after the backup are lost: newer
keys are unknown, and keys that were revoked since then work again. Agents reconnect by themselves if the gateway has its old URL.`,
  takes: 'file',
  flags: FLAGS,
  run: restoreCommand,
};

/**
 * Subdirectory in which files are unpacked until all are verified. If it exists, a restore is running or was
 * interrupted.
 */
const UNFINISHED = 'restoring';
/** The file is not an archive of this program, or it is incomplete. */
class ArchiveError extends CommandError {}

type Stated = BackupManifest['files'][number];

const PARTS = [LAYOUT_FILE, 'admin.key', 'issuer', ACCOUNTS_FILE, 'objects', 'files'];

async function restoreCommand(args: readonly string[]): Promise<number> {
  const {
    values,
    words: [file],
  } = parseLine(args, FLAGS, { words: 1 });
  if (file === undefined) throw new UsageError('usage: otela-gateway restore --data DIR FILE');
  process.umask(0o077);
  const { migrations } = await loadManifest();
  const { version, made_at, files } = await restore(
    values.data,
    file,
    migrations.map(({ name }) => name),
  );
  const summary = { data: values.data, files: files.length, version, made_at };
  const words = `${values.data}: ${files.length} files of ${made_at}, otela-gateway ${version}. Next: otela-gateway serve --data ${values.data}`;
  console.log(values.json ? JSON.stringify(summary) : words);
  return EXIT_DONE;
}

async function restore(directory: string, file: string, known: readonly string[]): Promise<BackupManifest> {
  await makeDirectory(directory);
  const data = await realpath(directory);
  await refuseUsed(data);
  const unfinished = join(data, UNFINISHED);
  try {
    const manifest = await unpack(file, unfinished, known);
    refuseFollower(unfinished);
    advanceCounters(unfinished);
    scheduleAllAlarms(join(unfinished, 'objects'));
    for (const part of PARTS) await rename(join(unfinished, part), join(data, part)).catch(whereItIs);
    // The lock is created last: without a lock, no program accepts the directory as the data of a gateway.
    await (await open(join(data, 'lock'), 'w', 0o600)).close();
    return manifest;
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
}

/** Ignores a missing directory. The backup of a gateway that never had an object contains no `objects`. */
function whereItIs(error: unknown): void {
  if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
}

/** Refuses a directory that is not empty, except for what an interrupted restore left. @throws CommandError */
async function refuseUsed(data: string): Promise<void> {
  const entries = (await readdir(data)).filter((name) => name !== 'lost+found');
  if (entries.includes('lock')) lockDirectory(data)();
  const ours = entries.includes(UNFINISHED) && entries.every((name) => name === UNFINISHED || PARTS.includes(name));
  if (ours) for (const name of entries) await rm(join(data, name), { recursive: true });
  else if (entries.length > 0)
    throw new CommandError(`${data} is not empty. Restore needs a new directory. Nothing was changed.`);
}

/**
 * Unpacks and verifies the files: the manifest must name every file with its SHA-256, and none may be missing.
 * @throws ArchiveError
 */
async function unpack(file: string, to: string, known: readonly string[]): Promise<BackupManifest> {
  const source = createReadStream(file);
  const plain = source.pipe(createGunzip());
  // pipe() does not forward errors, so they are forwarded here.
  source.once('error', (error) => plain.destroy(error));
  let manifest: BackupManifest | undefined;
  const missing = new Map<string, Stated>();
  const reader = new TarReader(async (entry, body) => {
    if (entry.type !== 'File' && entry.type !== 'OldFile') throw new ArchiveError(`${entry.path} is not a plain file`);
    if (manifest === undefined) {
      manifest = await readManifest(entry, body);
      refuseNewerLayout(file, manifest.layout);
      refuseNewerSchema(file, known, manifest.migrations);
      for (const one of manifest.files) missing.set(one.path, one);
      return;
    }
    const expected = missing.get(entry.path);
    if (expected === undefined) throw new ArchiveError(`${entry.path} is not in the manifest`);
    await writeVerified(body, expected, to);
    missing.delete(entry.path);
  });
  try {
    for await (const chunk of plain) await reader.push(chunk);
    await reader.end();
    if (manifest === undefined) throw new ArchiveError('it has no manifest');
    const [lost] = missing.keys();
    if (lost !== undefined) throw new ArchiveError(`${lost} is missing`);
    return manifest;
  } catch (error) {
    if (error instanceof CommandError && !(error instanceof ArchiveError)) throw error;
    const reason = errorText(error);
    throw new CommandError(`${file} cannot be restored: ${reason}. Nothing was changed.`, { cause: error });
  } finally {
    await reader.close();
    source.destroy();
    plain.destroy();
  }
}

async function readManifest({ path }: ReadEntry, body: Readable): Promise<BackupManifest> {
  const text = path === MANIFEST ? await readTextAtMost(body, BACKUP_MANIFEST_MAX_BYTES) : undefined;
  if (text === undefined) throw new ArchiveError('it is not a backup of otela-gateway');
  const stated: unknown = JSON.parse(text);
  if (manifestForm(stated) === WORKERD_FORM)
    throw new ArchiveError('it was made by otela-gateway 0.1 on workerd, and this version cannot read its data');
  const parsed = backupManifestSchema.safeParse(stated);
  if (parsed.success) return parsed.data;
  throw new ArchiveError('its manifest has an unknown format: a newer otela-gateway may have created it');
}

async function writeVerified(body: Readable, { path, bytes, sha256 }: Stated, to: string): Promise<void> {
  const target = join(to, path);
  await mkdir(dirname(target), { recursive: true, mode: 0o700 });
  await pipeline(body, createWriteStream(target, { mode: 0o600, flags: 'wx', flush: true }));
  if ((await stat(target)).size === bytes && (await sha256Of(target)) === sha256) return;
  throw new ArchiveError(`${path} differs from the manifest`);
}
