/** A provider's root key and a delegate of it, as `otela-agent vouch` makes them. */
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { nodeSigner } from '../../agent/host/node-crypto.ts';
import { DelegateKey } from '../../agent/seal/delegate-key.ts';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { temporaryDirectory } from './processes.ts';

export interface ProviderRoot {
  provider: string;
  /** The value that clients pin. */
  pin: string;
  /** Path of the file for `--delegate-file`. */
  delegateFile: string;
}

export async function providerRoot(provider: string): Promise<ProviderRoot> {
  const root = nodeSigner();
  const now = Math.floor(Date.now() / 1000);
  const delegateFile = join(await temporaryDirectory('otela-delegate'), 'delegate.key');
  const text = DelegateKey.make(provider, root, randomBytes(32), { now, life: 86_400 });
  await writeFile(delegateFile, text, { mode: 0o600 });
  return { provider, pin: toBase64url(root.publicKey), delegateFile };
}
