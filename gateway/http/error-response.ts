import { errorResponse as response } from '../../shared/proxy/error-response.ts';
import { responseOf } from './http-request.ts';

/** Any error, in the form and with the status that OpenAI's clients expect. */
export function errorResponse(error: unknown, requestId: string): Response {
  return responseOf(response(error, requestId));
}
