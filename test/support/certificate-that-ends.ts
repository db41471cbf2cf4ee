import { copyFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { openIssuer } from '../../gateway/hosts/node/issuer/issuer-files.ts';
import { temporaryDirectory } from './processes.ts';

const LEFT_S = 3 * 86_400;

/**
 * Makes the issuer of a data directory so that the gateway's certificate has three days left. Its root key is elsewhere, or the gateway's
 * start would renew it. @returns the root key's file
 */
export async function certificateThatEnds(data: string): Promise<string> {
  const nowS = Math.floor(Date.now() / 1000);
  const probe = await openIssuer(join(await temporaryDirectory(), 'issuer'), nowS);
  const lifeS = probe.certificate.notAfter - nowS;
  await openIssuer(join(data, 'issuer'), nowS - lifeS + LEFT_S);
  const safe = join(await temporaryDirectory('otela-safe'), 'root.key');
  // It may be on another file system.
  await copyFile(join(data, 'issuer/root.key'), safe);
  await rm(join(data, 'issuer/root.key'));
  return safe;
}
