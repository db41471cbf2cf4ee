import { ApiError } from '../../shared/openai/api-errors.ts';

/** The error of requests that this process cannot answer before it stops. Its clients retry it after a second. */
export function stoppingError(): ApiError {
  return new ApiError('server_is_overloaded', 'This gateway is stopping. Try again, or use another gateway.');
}
