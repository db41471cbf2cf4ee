import { errorBody, toApiError } from '../shared/openai/errors.ts';
import { type HttpAnswer, responseOf } from './http.ts';

/** Any error as OpenAI's clients read it, with its status. */
export function errorAnswer(error: unknown, requestId: string): HttpAnswer {
  const api = toApiError(error);
  const headers = { 'content-type': 'application/json', 'x-request-id': requestId, ...api.headers };
  return { status: api.status, headers, body: errorBody(api) };
}

export function errorResponse(error: unknown, requestId: string): Response {
  return responseOf(errorAnswer(error, requestId));
}
