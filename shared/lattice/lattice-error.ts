/**
 * Why bytes are rejected by the registry. Every code is a pure function of the bytes and the keys: no clock, and no
 * local state but size.
 */
export type LatticeErrorCode =
  | 'truncated' // Ends inside a field.
  | 'malformed' // Not canonical, a value out of range, or trailing bytes.
  | 'too_large'
  | 'bad_signature'
  | 'outside_validity' // Outside of the certificate's validity, or a ticket that lives too long.
  | 'mismatch' // Parts of different sessions, or a payload other than the signed one.
  | 'incomplete' // Nothing in it can be merged.
  | 'unknown_issuer' // An issuer that this replica does not list.
  | 'full'; // This replica holds the maximum for that issuer.

export class LatticeError extends Error {
  override readonly name = 'LatticeError';
  readonly code: LatticeErrorCode;

  constructor(code: LatticeErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
