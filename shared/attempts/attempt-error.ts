import { ApiError } from '../openai/api-errors.ts';
import type { AttemptFailure } from './attempt-request.ts';

/**
 * An attempt failed before the engine's whole answer arrived. An error that the engine answered is not an AttemptError.
 */
export class AttemptError extends Error {
  override readonly name = 'AttemptError';
  readonly code: AttemptFailure;
  /** An additional sentence for the client, which follows the message for `code`. */
  readonly clientHint: string | undefined;
  constructor(code: AttemptFailure, message: string, clientHint?: string) {
    super(message);
    this.code = code;
    this.clientHint = clientHint;
  }
}

/** The client's error if the last attempt failed before the engine's whole answer arrived. */
export function apiErrorFor(failure: AttemptError): ApiError {
  const error = errorOf(failure);
  return failure.clientHint === undefined
    ? error
    : new ApiError(error.code, `${error.message} ${failure.clientHint}`, { cause: failure });
}

function errorOf(failure: AttemptError): ApiError {
  const options = { cause: failure };
  switch (failure.code) {
    case 'first_byte_timeout':
    case 'hung':
      return new ApiError('upstream_timeout', 'The engine did not start its response in time.', options);
    case 'stall_timeout':
      return new ApiError('upstream_timeout', 'The engine stopped in the middle of its response.', options);
    case 'not_accepted':
    case 'unreachable':
    case 'refused':
    case 'suspected':
      return new ApiError(
        'no_capacity',
        'The node that serves this model cannot be reached; try again shortly.',
        options,
      );
    case 'overloaded':
      return new ApiError('server_is_overloaded', 'The node that serves this model is overloaded.', options);
    case 'over_quota':
      return new ApiError(
        'insufficient_quota',
        'The institution of the nodes that serve this model allows no more usage this month.',
        options,
      );
    case 'seal_refused':
      return new ApiError('invalid_request', 'No node could decrypt the sealed request.', options);
    default:
      return new ApiError(
        'upstream_error',
        'The connection to the engine was lost before its response was complete.',
        options,
      );
  }
}
