/**
 * The key of another gateway of the same institution. It is created where the root key is, and the operator transfers
 * it.
 */

import { readFile } from 'node:fs/promises';
import * as z from 'zod';
import { toBase64url } from '../../../../shared/lattice/base64url.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { CommandError } from '../../../command-error.ts';
import { newSeed } from '../../../issuer/ed25519.ts';
import { certifyKey, GatewayIssuer } from '../../../issuer/issuer.ts';
import { nowS } from '../../../platform/unix-time.ts';
import { makeDirectory } from '../data/make-directory.ts';
import {
  type IssuerFiles,
  keyNames,
  openIssuer,
  readIssuerFile,
  requireRoot,
  writeIssuerFile,
} from './issuer-files.ts';

const identitySchema = z.strictObject({ key: z.string().max(64), certificate: z.string().max(512) });

/**
 * Creates a gateway key with its certificate, as JSON that must be kept secret.
 * @throws IssuerError if the root key is not on this machine
 */
export function issueGatewayKey(files: IssuerFiles, nowS: number): string {
  return JSON.stringify(certifyKey(requireRoot(files), toBase64url(newSeed()), nowS));
}

/**
 * Stores a file of issueGatewayKey where the gateway looks for its keys. Repeating it changes nothing.
 * @throws CommandError
 */
export async function adoptIdentity(dir: string, file: string): Promise<void> {
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new CommandError(`${file} cannot be read: ${errorText(cause)}`, { cause });
  });
  let identity: z.infer<typeof identitySchema>;
  let name: string;
  try {
    identity = identitySchema.parse(JSON.parse(text));
    name = new GatewayIssuer(identity).certificate.keyName;
  } catch (cause) {
    throw new CommandError(`${file} is not what \`otela-gateway issuer delegate\` printed`, { cause });
  }
  await makeDirectory(dir);
  const own = await readIssuerFile(dir, 'gateway.key');
  if (own === identity.key) return;
  // `file` may contain a retired key: the gateway's service still names the original file after `issuer rotate` has
  // created a newer key.
  const files = own === undefined ? undefined : await openIssuer(dir, nowS());
  if (files !== undefined && keyNames(files).retired.includes(name)) return;
  if (own !== undefined)
    throw new CommandError(`${dir} contains the key of another gateway. A follower needs its own data directory.`);
  await writeIssuerFile(dir, 'gateway.cert', identity.certificate);
  await writeIssuerFile(dir, 'gateway.key', identity.key);
}

/** @throws CommandError if there is no identity: without one a follower would become a new institution */
export async function requireIdentity(dir: string): Promise<void> {
  await makeDirectory(dir);
  if ((await readIssuerFile(dir, 'gateway.key')) !== undefined) return;
  throw new CommandError(
    'A follower needs --identity FILE at its first start. Create the file on the machine with the root key: otela-gateway issuer delegate > FILE',
  );
}
