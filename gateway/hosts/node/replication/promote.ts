/** Makes a follower the primary, authorized by the root key. */

import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fromBase64url } from '../../../../shared/lattice/base64url.ts';
import { CommandError } from '../../../command-error.ts';
import { workerdSigner } from '../../../issuer/ed25519.ts';
import { nowS } from '../../../platform/unix-time.ts';
import { openIssuer } from '../issuer/issuer-files.ts';
import { Database } from '../sqlite.ts';
import { signEpoch } from './epoch-statement.ts';
import type { ReplicationState } from './replicator.ts';
import { REPLICATION_FILE, readRole, writeRole } from './role-file.ts';

interface Promotion {
  data: string;
  /** File of the root key; absent: DATA/issuer/root.key. */
  rootKey?: string;
  /** URL of this gateway. */
  url: string;
}

/** @throws CommandError if the follower cannot become the primary */
export async function promote({ data, rootKey, url }: Promotion): Promise<{ epoch: number; former: string }> {
  const role = readRole(data);
  if (role.role === 'first') throw new CommandError(`${data} is already the primary, epoch ${role.epoch}.`);
  const issuer = await openIssuer(join(data, 'issuer'), nowS());
  const text = rootKey === undefined ? issuer.root : (await readFile(rootKey, 'utf8')).trim();
  const seed = text === undefined ? undefined : fromBase64url(text, 32);
  if (seed?.length !== 32)
    throw new CommandError('promote needs the root key of the institution: --root-key FILE, a copy of root.key');
  const signer = workerdSigner(seed);
  if (Buffer.compare(signer.publicKey, issuer.certificate.root) !== 0)
    throw new CommandError('This is the root key of another institution.');
  const { feed, seq } = copyCursor(data);
  const epoch = role.epoch + 1;
  const statement = signEpoch({ epoch, first: issuer.certificate.keyName, url, since: seq, feed }, signer);
  const former = role.follow ?? '';
  writeRole(data, { role: 'first', epoch, statement, ...(former === '' ? {} : { tell: [former] }) });
  return { epoch, former };
}

/**
 * Returns the follower's position in the former primary's feed.
 * @throws CommandError if the follower has no complete copy
 */
function copyCursor(data: string): { feed: string; seq: number } {
  const file = join(data, REPLICATION_FILE);
  const database = new Database(file);
  try {
    const [row] = existsSync(file) ? database.rows('SELECT state FROM copy_state WHERE id = 1', []) : [];
    const state = row === undefined ? undefined : (JSON.parse(String(row.state)) as ReplicationState);
    if (state?.cursor != null && state.syncedAt > 0) return state.cursor;
  } finally {
    database.close();
  }
  throw new CommandError(
    'This gateway has no complete copy of the accounts, so it cannot become the primary. Promote another follower.',
  );
}
