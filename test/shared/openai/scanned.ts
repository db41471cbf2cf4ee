/** Helpers that the tests of the scan share. */
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { scanJson } from '../../../shared/openai/scan-json-body.ts';
import { bytes } from './support.ts';

/** The error with which the scan refuses this body. @throws Error if the scan accepts it */
export function failure(body: string | Uint8Array): ApiError {
  try {
    scanJson(typeof body === 'string' ? bytes(body) : body);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error(`accepted: ${String(body).slice(0, 200)}`);
}
