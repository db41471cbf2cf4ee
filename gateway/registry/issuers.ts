/** Whose tickets are good here: our own issuer's, and those of the peers that the operator listed. */
import { fromBase64url } from '../../shared/lattice/base64url.ts';
import { issuerId } from '../../shared/lattice/certificate.ts';
import { type Crypto, KEY_BYTES } from '../../shared/lattice/crypto.ts';

/** As it travels: in snapshots, and to agents. */
export interface ListedIssuer {
  /** `local`, or what the operator calls the peer. */
  name: string;
  /** Made of the root key. */
  id: string;
  /** Public key, base64url. */
  root: string;
  /** Where the peer's gateway is. */
  url?: string | undefined;
}

/** Undefined where `root` is no key. */
export function listedIssuer(
  name: string,
  root: string,
  url: string | undefined,
  crypto: Pick<Crypto, 'sha256'>,
): ListedIssuer | undefined {
  const key = fromBase64url(root, KEY_BYTES);
  if (key?.length !== KEY_BYTES) return undefined;
  return { name, id: issuerId(key, crypto), root, ...(url === undefined ? {} : { url }) };
}
