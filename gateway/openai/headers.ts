import * as lists from '../../shared/openai/headers.ts';
import type { HeaderList } from '../../shared/wire/headers.ts';
import type { HttpRequest } from '../http.ts';

export { headersToClient } from '../../shared/openai/headers.ts';

/** `requestId`: the client's own, where it gave one; else the agent sends the stream's name. */
export function headersToEngine(request: HttpRequest, requestId: string | undefined): HeaderList {
  return lists.headersToEngine((name) => request.headers.get(name), requestId);
}
