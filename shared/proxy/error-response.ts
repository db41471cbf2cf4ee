import type { Endpoint } from '../openai/endpoints.ts';
import { errorBodyFor, toApiError } from '../openai/errors.ts';
import type { ProxyResponse } from './message.ts';

/** Any error as a response in the form that the clients of `endpoint` read, OpenAI's without one, with its status. */
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
