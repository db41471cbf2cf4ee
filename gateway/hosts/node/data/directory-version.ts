/**
 * `layout.json` contains the version of a data directory: of the names of its files and of their contents. The tables
 * of `accounts.sqlite` are versioned separately (migrations/).
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { writePrivateFile } from '../../../../node/private-file.ts';
import { tryParseJson } from '../../../../shared/text/parse-json.ts';
import { CommandError } from '../../../command-error.ts';
import { refuseFollower, removeFollowing } from './former-followers.ts';

export const LAYOUT_FILE = 'layout.json';

/**
 * Migrates a data directory from one version to the next. It must also work on a directory in which it was interrupted
 * before.
 */
type LayoutMigration = (data: string) => Promise<void>;

/**
 * Migrations: the first one migrates version 1 to version 2, and so on. A change of stored objects, of alarms or of a
 * file name needs an entry here, unless the object itself reads the old form. Every such change needs a directory of
 * the previous version in test/fixtures/data-directory.
 */
const LAYOUT_MIGRATIONS: readonly LayoutMigration[] = [
  // Version 2: limits objects also store the monthly usage of other gateways, and the observe object stores request
  // timelines. The objects create these tables themselves.
  async () => {},
  // Version 3: limits objects also store running requests, and tunnel objects store the estimate that an exact usage
  // record replaces. The objects create these tables and columns themselves.
  async () => {},
  // Version 4: the registry object also stores moves of replicas. It creates this table itself.
  async () => {},
  // Version 5: a gateway has no followers.
  removeFollowing,
];

const layoutSchema = z.object({ layout: z.literal('node'), version: z.number().int().min(1) });

/** Returns the version that a program with these migrations writes. */
export function newestLayout(migrations: readonly LayoutMigration[] = LAYOUT_MIGRATIONS): number {
  return migrations.length + 1;
}

/**
 * Reads the version; undefined if nothing is stored yet. Changes nothing.
 * @throws CommandError if this program cannot read the data
 */
export function layoutOf(data: string, newest = newestLayout()): number | undefined {
  const file = join(data, LAYOUT_FILE);
  if (!existsSync(file)) return refuseOthers(data);
  const layout = layoutSchema.safeParse(tryParseJson(readFileSync(file, 'utf8')));
  if (!layout.success)
    throw new CommandError(
      `${file} is damaged: it does not contain the layout version of a data directory. Nothing was changed. ` +
        'Move the data directory away and restore a backup: otela-gateway restore --data DIR FILE',
    );
  refuseNewerLayout(data, layout.data.version, newest);
  refuseFollower(data);
  return layout.data.version;
}

/** @throws CommandError if `version` is newer than this program's */
export function refuseNewerLayout(what: string, version: number, newest = newestLayout()): void {
  if (version <= newest) return;
  throw new CommandError(
    `${what} was written by a newer otela-gateway: its layout has version ${version}, but this version knows at most ${newest}. ` +
      'Run that version or a later one, or restore a backup from before the upgrade. Nothing was changed.',
  );
}

/** Migrates step by step. The version is written after each step, so that an interrupted start continues after it. */
export async function migrateLayout(data: string, migrations = LAYOUT_MIGRATIONS): Promise<void> {
  const newest = newestLayout(migrations);
  const version = layoutOf(data, newest);
  if (version === undefined) return write(data, newest);
  for (let at = version; at < newest; at++) {
    await migrations[at - 1]?.(data);
    write(data, at + 1);
  }
}

function write(data: string, version: number): void {
  writePrivateFile(join(data, LAYOUT_FILE), `${JSON.stringify({ layout: 'node', version })}\n`);
}

/**
 * Refuses data of version 0.1, which ran on workerd, and of a trial version of this host. Neither can be imported.
 * @throws CommandError
 */
function refuseOthers(data: string): undefined {
  const has = (directory: string, found = /./) =>
    existsSync(join(data, directory)) && readdirSync(join(data, directory)).some((name) => found.test(name));
  const made =
    has('d1') || has('objects', /^opentela-/)
      ? 'otela-gateway 0.1 on workerd (d1/, objects/opentela-…)'
      : has('accounts') || has('node-objects')
        ? 'a trial of otela-gateway on Node (accounts/, node-objects/)'
        : undefined;
  if (made === undefined) return undefined;
  throw new CommandError(
    `${data} contains data of ${made}, which this version cannot read. Nothing was changed. Give --data another directory.`,
  );
}
