/** Why sealed bytes are not taken. Told to no one in detail: which check failed is the first thing that an attacker asks. */
export type SealErrorCode = 'malformed' | 'too_large' | 'not_opened' | 'cut';

export class SealError extends Error {
  override readonly name = 'SealError';
  readonly code: SealErrorCode;

  constructor(code: SealErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
