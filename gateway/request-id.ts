import { ownRequestId } from '../shared/proxy/request-id.ts';
import type { HttpRequest } from './http.ts';

/** The client's `x-request-id` if it is well formed, else a new one. */
export function requestIdOf({ headers }: HttpRequest): string {
  return ownRequestId({ header: (name) => headers.get(name) }) ?? crypto.randomUUID();
}
