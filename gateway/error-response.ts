import type { Endpoint } from '../shared/openai/endpoints.ts';
import { errorBodyFor, toApiError } from '../shared/openai/errors.ts';
import { type HttpAnswer, responseOf } from './http.ts';

/** Any error as the clients of `endpoint` read it, OpenAI's without one, with its status. */
export function errorAnswer(error: unknown, requestId: string, endpoint?: Endpoint): HttpAnswer {
  const api = toApiError(error);
  const headers = { 'content-type': 'application/json', 'x-request-id': requestId, ...api.headers };
  return { status: api.status, headers, body: errorBodyFor(endpoint, api) };
}

export function errorResponse(error: unknown, requestId: string): Response {
  return responseOf(errorAnswer(error, requestId));
}
