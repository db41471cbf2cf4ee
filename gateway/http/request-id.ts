import { clientRequestId } from '../../shared/proxy/client-request-id.ts';
import type { HttpRequest } from './http-request.ts';

/** Returns the client's `x-request-id` if it is well formed, otherwise a new id. */
export function requestIdOf({ headers }: HttpRequest): string {
  return clientRequestId({ header: (name) => headers.get(name) }) ?? crypto.randomUUID();
}
