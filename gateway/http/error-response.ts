import { errorResponse as response } from '../../shared/proxy/error-response.ts';
import { responseOf } from './http-request.ts';

/** Any error as OpenAI's clients read it, with its status. */
export function errorResponse(error: unknown, requestId: string): Response {
  return responseOf(response(error, requestId));
}
