/** Why an agent refuses an order. */
export const REFUSALS = [
  'malformed',
  'foreign_issuer',
  'revoked_key',
  'bad_signature',
  'wrong_session',
  'expired',
  'replayed',
  'unknown_template',
  'bad_parameters',
  'busy',
  'nothing_deployed',
  'cannot_start',
  'unknown_model',
  'unsupported',
] as const;
export type RefusalCode = (typeof REFUSALS)[number];

export class DeploymentError extends Error {
  readonly code: RefusalCode;

  constructor(code: RefusalCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'DeploymentError';
    this.code = code;
  }
}
