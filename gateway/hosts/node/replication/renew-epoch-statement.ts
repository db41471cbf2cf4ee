/** Renews the root's statement about the primary, which has a new gateway key. The epoch stays. */

import { fromBase64url } from '../../../../shared/lattice/base64url.ts';
import type { Certificate } from '../../../../shared/lattice/gateway-certificate.ts';
import { workerdSigner } from '../../../issuer/ed25519.ts';
import { readEpoch, signEpoch } from './epoch-statement.ts';
import { readRole, writeRole } from './role-file.ts';

/**
 * Does nothing for a gateway that was never promoted, because it has no statement. `root`: the root key in base64url.
 */
export function renewStatement(
  data: string,
  { root, certificate }: { root: string | undefined; certificate: Certificate },
) {
  const role = readRole(data);
  const seed = root === undefined ? undefined : fromBase64url(root, 32);
  if (role.role !== 'first' || role.statement === undefined || seed === undefined) return;
  const previous = readEpoch(role.statement, certificate.root);
  if (previous === undefined || previous.first === certificate.keyName) return;
  const statement = signEpoch({ ...previous, first: certificate.keyName }, workerdSigner(seed));
  writeRole(data, { ...role, statement });
}
