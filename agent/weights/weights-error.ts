import * as z from 'zod';
import { errorText } from '../../shared/text/error-text.ts';

/**
 * `unavailable`: this node or source failed, and another one may succeed. `refused`: the other node does not serve this
 * one. `wrong`: invalid bytes or an invalid list. `changed`: the source changed since it was listed. `full`: the disk
 * is full. `stopped`: the caller gave up.
 */
type WeightsErrorCode = 'unavailable' | 'refused' | 'wrong' | 'changed' | 'full' | 'stopped';

interface WeightsErrorOptions extends ErrorOptions {
  status?: number;
}

export class WeightsError extends Error {
  override readonly name = 'WeightsError';
  readonly code: WeightsErrorCode;
  /** Status of the source's response; undefined: it sent none. */
  readonly status: number | undefined;
  constructor(code: WeightsErrorCode, message: string, { status, ...options }: WeightsErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.status = status;
  }
}

export function asWeightsError(error: unknown): WeightsError {
  if (error instanceof WeightsError) return error;
  const said = errorText(error);
  const message = error instanceof z.ZodError ? z.prettifyError(error) : said;
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return new WeightsError(code === 'ENOSPC' || code === 'EDQUOT' ? 'full' : 'unavailable', message, { cause: error });
}
