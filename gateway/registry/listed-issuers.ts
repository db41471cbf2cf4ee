/** Issuers of accepted tickets: our own, and those of the peer institutions that the operator listed. */
import { fromBase64url } from '../../shared/lattice/base64url.ts';
import { type Crypto, KEY_BYTES } from '../../shared/lattice/crypto-interface.ts';
import { issuerId } from '../../shared/lattice/gateway-certificate.ts';

/** The form in snapshots and in responses to agents. */
export interface ListedIssuer {
  /** `local`, or the operator's name for the peer institution. */
  name: string;
  /** Derived from the root key. */
  id: string;
  /** Public key, base64url. */
  root: string;
  /** Address of the peer institution's gateway. */
  url?: string | undefined;
}

/** Undefined if `root` is not a valid key. */
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
