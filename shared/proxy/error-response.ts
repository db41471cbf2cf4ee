import { errorBodyFor, toApiError } from '../openai/api-errors.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import type { ProxyResponse } from './proxy-http-types.ts';

/**
 * Converts any error into a response with its status, in the form that the endpoint's clients expect. If there is no
 * endpoint, the form is OpenAI's.
 */
export function errorResponse(error: unknown, requestId: string, endpoint?: Endpoint): ProxyResponse {
  const api = toApiError(error);
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    'x-request-id': requestId,
    ...api.headers,
  };
  if (endpoint?.requestIdHeader !== undefined) headers[endpoint.requestIdHeader] = requestId;
  return { status: api.status, headers, body: errorBodyFor(endpoint, api) };
}
