/** Why bytes are no part of the registry. Every code is a pure function of the bytes and the keys: no clock, no local state but size. */
export type LatticeErrorCode =
  | 'truncated' // ends inside a field
  | 'malformed' // a second spelling, a value out of its range, bytes behind the end
  | 'too_large'
  | 'bad_signature'
  | 'outside_validity' // of the certificate, or a ticket that lives too long
  | 'mismatch' // parts of different sessions, or a payload that is not the one that was signed
  | 'incomplete' // nothing in it that could be merged
  | 'unknown_issuer' // an issuer that this replica does not list
  | 'full'; // this replica holds as much of that issuer as it may

export class LatticeError extends Error {
  override readonly name = 'LatticeError';
  readonly code: LatticeErrorCode;

  constructor(code: LatticeErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
