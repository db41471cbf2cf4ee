import { errorBody, toApiError } from '../shared/openai/errors.ts';

/** Any error as OpenAI's clients read it, with its status. */
export function errorResponse(error: unknown, requestId: string): Response {
  const api = toApiError(error);
  const headers = new Headers({ 'content-type': 'application/json', 'x-request-id': requestId, ...api.headers });
  return new Response(errorBody(api), { status: api.status, headers });
}
