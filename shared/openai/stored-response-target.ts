/**
 * How an agent learns which stored response a request is for: the header RESPONSE_TARGET_HEADER of the OPEN frame has
 * the response's id and the query, such as `resp_1?stream=true&starting_after=5`.
 */
import { ApiError } from './api-errors.ts';
import { type Endpoint, enginePathAt } from './endpoints.ts';

/** Clients cannot send this header to an agent, because only listed headers are passed on. */
export const RESPONSE_TARGET_HEADER = 'x-otela-response';

const TARGET = /^([A-Za-z0-9_-]{1,128})(\?stream=true(?:&starting_after=\d{1,15})?)?$/;

/** @param search the client's query, with its `?`. @throws ApiError 400 for a position that is not a number */
export function responseTarget(id: string, search: string): { target: string; streaming: boolean } {
  const parts = search.slice(1).split('&');
  if (!parts.includes('stream=true')) return { target: id, streaming: false };
  const after = parts.find((part) => part.startsWith('starting_after='));
  if (after !== undefined && !/^starting_after=\d{1,15}$/.test(after))
    throw new ApiError('invalid_value', 'starting_after must be the number of an event.', { param: 'starting_after' });
  return { target: `${id}?stream=true${after === undefined ? '' : `&${after}`}`, streaming: true };
}

/** The path and query at the engine. Undefined if the header is absent or invalid. */
export function responsePathAt(
  endpoint: Endpoint,
  engine: string | undefined,
  target: string | undefined,
): string | undefined {
  const [, id, query = ''] = TARGET.exec(target ?? '') ?? [];
  return id === undefined ? undefined : enginePathAt(endpoint, engine).replace('{id}', id) + query;
}
