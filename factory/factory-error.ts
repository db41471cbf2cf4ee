import { errorText } from '../shared/text/error-text.ts';

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

/** Formats the message of any error as one line of at most `max` characters, which is the bound of a report. */
export function errorLine(error: unknown, max = 280): string {
  return errorText(error).replace(/\s+/g, ' ').trim().slice(0, max);
}
