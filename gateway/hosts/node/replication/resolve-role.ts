/** Combines `serve --follow` with DATA/role.json. If a promotion came after the flag was set, the file is newer. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CommandError } from '../../../command-error.ts';
import { ACCOUNTS_FILE } from '../data/schema-version.ts';
import { ROLE_FILE, readRole, writeRole } from './role-file.ts';

/**
 * Called before the accounts are opened: if this gateway has the accounts of a primary, a follower's first copy would
 * erase them.
 * @throws CommandError if flag and directory contradict each other
 */
export function resolveRole(data: string, follow: string | undefined): void {
  // The file of a former primary that follows contains the primary, so the flag is not needed.
  if (follow === undefined) return;
  const role = readRole(data);
  if (role.role === 'follower') {
    if (role.epoch === 0 && role.follow !== follow) writeRole(data, { ...role, follow });
    return;
  }
  if (role.epoch > 0)
    throw new CommandError(`This gateway was promoted to primary, epoch ${role.epoch}: start it without --follow.`);
  if (!existsSync(join(data, ROLE_FILE)) && existsSync(join(data, ACCOUNTS_FILE)))
    throw new CommandError(
      `${data} already contains accounts. A follower needs an empty directory. Nothing was changed.`,
    );
  writeRole(data, { role: 'follower', epoch: 0, follow });
}
