/**
 * One of several processes that share a data directory (`--processes N` without `--database`). The first one uses the
 * directory as a single gateway does. Each of the others has a data directory below it, for the agents that are
 * connected to it.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writePrivateFile } from '../../../../node/private-file.ts';
import manifest from '../../../../package.json' with { type: 'json' };
import { nowS } from '../../../platform/unix-time.ts';
import { OWNER } from '../cluster/directory-membership.ts';
import { DirectoryObjects } from '../cluster/directory-objects.ts';
import { LinkedAccounts } from '../cluster/linked-accounts.ts';
import type { SharedObjects, SharingContext } from '../cluster/shared-objects.ts';
import type { DataDirectory } from '../data/data-directory.ts';
import { ACCOUNTS_FILE } from '../data/schema-version.ts';
import { openIssuer, workerSecrets } from '../issuer/issuer-files.ts';
import { type DirectoryProcess, PROCESSES_DIRECTORY } from './process-count.ts';

interface OpenedProcess {
  /** The operator's first key. */
  adminKey: string;
  /** Settings with the issuer's keys. */
  issuer: Record<string, string>;
  /** The accounts of the first process. Undefined: this process is the first. */
  accounts: LinkedAccounts | undefined;
  share(context: SharingContext): SharedObjects;
}

/** @throws IssuerError */
export async function openDirectoryProcess(
  { shared, number }: DirectoryProcess,
  data: DataDirectory,
): Promise<OpenedProcess> {
  const isFirst = number === OWNER;
  // The first process is ready before the others start, so the issuer's files exist.
  const issuer = workerSecrets(await openIssuer(join(shared, 'issuer'), nowS()));
  const adminKey = isFirst ? data.adminKey : (await readFile(join(shared, 'admin.key'), 'utf8')).trim();
  if (adminKey !== data.adminKey) writePrivateFile(join(data.path, 'admin.key'), `${adminKey}\n`);
  const hours = join(shared, 'objects', 'USAGE');
  const accounts = isFirst ? undefined : new LinkedAccounts(join(shared, ACCOUNTS_FILE), hours);
  const me = { incarnation: randomUUID(), process: number, address: '', url: undefined, version: manifest.version };
  const directory = join(shared, PROCESSES_DIRECTORY);
  return {
    adminKey,
    issuer,
    accounts,
    share: (context) => new DirectoryObjects({ directory, hours, me, accounts }, context),
  };
}
