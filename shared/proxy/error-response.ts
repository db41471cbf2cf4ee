import type { Endpoint } from '../openai/endpoints.ts';
import { errorBodyFor, toApiError } from '../openai/errors.ts';

/** Any error in the form that the clients of `endpoint` read, OpenAI's without one, with its status. */
export function errorResponse(error: unknown, requestId: string, endpoint?: Endpoint) {
  const api = toApiError(error);
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'x-request-id': requestId,
    ...api.headers,
  };
  return { status: api.status, headers, body: errorBodyFor(endpoint, api) };
}
