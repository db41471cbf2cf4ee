import { REQUEST_ID_PATTERN } from '../shared/openai/headers.ts';
import type { HttpRequest } from './http.ts';

/** The client's `x-request-id` if it is well formed, else a new one. */
export function requestIdOf(request: HttpRequest): string {
  const given = request.headers.get('x-request-id');
  return given !== null && REQUEST_ID_PATTERN.test(given) ? given : crypto.randomUUID();
}
