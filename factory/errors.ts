/**
 * `config`: the file is wrong, nothing was done. `busy`: another factory holds the lease. `gateway`: the gateway
 * refused.
 */
export type FactoryErrorCode = 'config' | 'busy' | 'gateway';

export class FactoryError extends Error {
  override name = 'FactoryError';
  readonly code: FactoryErrorCode;

  constructor(code: FactoryErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Text of any error, cut to the bound of a report. */
export function errorText(error: unknown, max = 280): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.replace(/\s+/g, ' ').trim().slice(0, max);
}
