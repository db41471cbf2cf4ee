import { copyFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { openIssuer } from '../../gateway/hosts/node/issuer/issuer-files.ts';
import { temporaryDirectory } from './processes.ts';

const LEFT_S = 3 * 86_400;

/**
 * Creates the issuer of a data directory with a gateway certificate that has three days left. Its root key is moved
 * elsewhere, because the gateway would otherwise renew the certificate at its start. @returns the root key's file
 */
export async function certificateThatEnds(data: string): Promise<string> {
  const nowS = Math.floor(Date.now() / 1000);
  const probe = await openIssuer(join(await temporaryDirectory(), 'issuer'), nowS);
  const lifeS = probe.certificate.notAfter - nowS;
  await openIssuer(join(data, 'issuer'), nowS - lifeS + LEFT_S);
  const safe = join(await temporaryDirectory('otela-safe'), 'root.key');
  // Copied and not renamed: it may be on another file system.
  await copyFile(join(data, 'issuer/root.key'), safe);
  await rm(join(data, 'issuer/root.key'));
  return safe;
}
