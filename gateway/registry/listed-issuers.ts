/** Issuers of accepted tickets: our own, and those of the peer institutions that the operator listed. */
import { fromBase64url } from '../../shared/lattice/base64url.ts';
import { type Crypto, KEY_BYTES } from '../../shared/lattice/crypto-interface.ts';
import { issuerId } from '../../shared/lattice/gateway-certificate.ts';

/** An issuer as snapshots and responses to agents contain it. */
export interface ListedIssuer {
  /** `local`, or the operator's name for the peer institution. */
  name: string;
  /** Id of the issuer, derived from the root key. */
  id: string;
  /** Public root key in base64url. */
  root: string;
  /** Address of the peer institution's gateway; absent: unknown. */
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
