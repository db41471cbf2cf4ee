/**
 * Why the registry rejects bytes. Each code depends only on the bytes and the keys, not on a clock. `full`,
 * `unknown_issuer` and `incomplete` also depend on the replica's content and its list of issuers.
 */
export type LatticeErrorCode =
  | 'truncated' // The bytes end inside a field.
  | 'malformed' // The encoding is not canonical, a value is out of range, or bytes follow the end.
  | 'too_large'
  | 'bad_signature'
  | 'outside_validity' // Outside of the certificate's validity, or a ticket that lives too long.
  | 'mismatch' // The parts belong to different sessions, or the payload is not the signed one.
  | 'incomplete' // The update contains nothing that can be merged.
  | 'unknown_issuer' // This replica does not list the issuer.
  | 'full'; // This replica holds the maximum for that issuer.

export class LatticeError extends Error {
  override readonly name = 'LatticeError';
  readonly code: LatticeErrorCode;

  constructor(code: LatticeErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
