/** `otela-gateway backup`: copies all data of a running gateway into one file. */
import { open, realpath, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { create, type TarOptionsWithAliasesAsyncFile } from 'tar';
import program from '../../../../package.json' with { type: 'json' };
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../../../shared/command-line/index.ts';
import { CommandError } from '../../../command-error.ts';
import { layoutOf } from '../data/directory-version.ts';
import { ACCOUNTS_FILE, appliedMigrations } from '../data/schema-version.ts';
import { refuseBound } from '../postgresql/database-binding.ts';
import { concurrentCopiesMax, copyDatabases, copyKeys, databasesOf } from './copy-databases.ts';
import { linkFiles } from './link-files.ts';
import { BACKUP_FORM, type BackupManifest, backupManifestSchema, MANIFEST, sha256Of } from './manifest.ts';
import { exists, withStaging } from './staging-directory.ts';

const FLAGS = {
  data: { default: './data', value: 'DIR', takes: 'directory', help: 'the data directory' },
  out: { value: 'FILE', takes: 'file', help: 'file to write the backup to; it must not exist' },
  ...JSON_FLAG,
} as const satisfies Flags;

export const BACKUP_COMMAND: Command = {
  summary: 'back up all data of a gateway while it runs',
  examples: `--data DIR --out FILE

  otela-gateway backup --data ./data --out otela-$(date +%F).tar.gz
  tar -xzOf otela-2026-11-22.tar.gz manifest.json              lists the files of the backup with their SHA-256
  otela-gateway restore --data ./elsewhere otela-2026-11-22.tar.gz

The backup has the accounts, usage records, the registry, the admin key and the keys of the issuer. Anyone with the file can act as the
gateway: only you can read it (mode 0600); do not change that. The directory of FILE needs as much free space as the data takes.
The backup does not have environment variables, TLS files, or a root key that is stored elsewhere.`,
  flags: FLAGS,
  run: backupCommand,
};

/** Number of bytes of one read. */
const PIECE_BYTES = 1024 * 1024;
const PRIVATE_MODE = 0o600;

async function backupCommand(args: readonly string[]): Promise<number> {
  const { values } = parseLine(args, FLAGS);
  if (values.out === undefined) throw new UsageError('--out is missing: give the file for the backup');
  // Files created from here on are readable only by this user.
  process.umask(0o077);
  const out = resolve(values.out);
  const manifest = await backUp(values.data, out);
  const { size } = await stat(out);
  const summary = {
    file: out,
    bytes: size,
    files: manifest.files.length,
    version: manifest.version,
    made_at: manifest.made_at,
  };
  console.log(values.json ? JSON.stringify(summary) : `${out}: ${summary.files} files, ${Math.ceil(size / 1024)} KiB`);
  return EXIT_DONE;
}

/** Writes a backup. The file gets its name only when it is complete and on disk. @throws CommandError */
async function backUp(directory: string, out: string): Promise<BackupManifest> {
  const { data, layout } = await gatewayData(directory);
  if (await exists(out)) throw new CommandError(`${out} already exists; a backup never replaces a file`);
  return withStaging(
    dirname(out),
    (line) => console.error(line),
    async (staging) => {
      const copies = join(staging, 'data');
      const madeAt = new Date();
      const atOnce = concurrentCopiesMax();
      // Files are linked before and after the databases are copied. A copied database may refer to a file that is
      // deleted during the copy, or to a file that is added during it.
      const before = await linkFiles(data, copies);
      const databases = await copyDatabases(data, await databasesOf(data, atOnce), copies, atOnce);
      const stored = new Set([...before, ...(await linkFiles(data, copies))]);
      const paths = [...databases, ...stored, ...(await copyKeys(data, copies))];
      const files: BackupManifest['files'] = [];
      // Files are hashed one after another, because each open file needs a descriptor.
      for (const path of paths.sort()) {
        const file = join(copies, path);
        files.push({ path, bytes: (await stat(file)).size, sha256: await sha256Of(file) });
      }
      const migrations = appliedMigrations(join(copies, ACCOUNTS_FILE));
      const { version } = program;
      const form = { otela_backup: BACKUP_FORM, version, made_at: madeAt.toISOString(), layout, migrations, files };
      // The manifest is parsed as restore will parse it, so that errors are found now.
      const manifest = backupManifestSchema.parse(form);
      const whole = join(staging, 'whole');
      await pack(manifest, copies, whole);
      await rename(whole, out);
      return manifest;
    },
  );
}

/** The manifest comes first. All entries are plain files without extended headers, which earlier versions refuse. */
async function pack(manifest: BackupManifest, copies: string, target: string): Promise<void> {
  await writeFile(join(copies, MANIFEST), `${JSON.stringify(manifest, null, 1)}\n`);
  const options: TarOptionsWithAliasesAsyncFile = {
    file: target,
    cwd: copies,
    gzip: true,
    portable: true,
    noPax: true,
    mtime: new Date(Math.floor(Date.parse(manifest.made_at) / 1000) * 1000),
    // Files are packed one at a time and in pieces, because a file may have gigabytes.
    jobs: 1,
    maxReadSize: PIECE_BYTES,
    onWriteEntry: ({ stat }) => {
      if (stat !== undefined) stat.mode = PRIVATE_MODE;
    },
  };
  await create(options, [MANIFEST, ...manifest.files.map(({ path }) => path)]);
  const handle = await open(target, 'r');
  await handle.sync();
  await handle.close();
}

async function gatewayData(directory: string): Promise<{ data: string; layout: number }> {
  const data = await realpath(directory).catch(() => directory);
  const layout = layoutOf(data);
  refuseBound(data, 'Back up both while the gateway is stopped: docs/postgresql.md.');
  if (layout !== undefined && (await exists(join(data, 'admin.key')))) return { data, layout };
  throw new CommandError(`${directory} contains no data of a gateway; give its data directory with --data`);
}
