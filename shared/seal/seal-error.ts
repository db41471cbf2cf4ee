/** Why sealed bytes are refused. The peer never learns details: which check failed is what an attacker asks first. */
type SealErrorCode = 'malformed' | 'too_large' | 'not_opened' | 'cut';

export class SealError extends Error {
  override readonly name = 'SealError';
  readonly code: SealErrorCode;

  constructor(code: SealErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
