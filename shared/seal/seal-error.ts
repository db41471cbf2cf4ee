/**
 * Why sealed bytes are refused. The reason is never sent to the peer, because an attacker could learn from it which
 * check failed.
 */
type SealErrorCode = 'malformed' | 'too_large' | 'not_opened' | 'cut';

export class SealError extends Error {
  override readonly name = 'SealError';
  readonly code: SealErrorCode;

  constructor(code: SealErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
