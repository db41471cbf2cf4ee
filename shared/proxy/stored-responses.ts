/**
 * Requests that only the node can answer that stored an earlier response: those that retrieve, cancel or delete it, and
 * those that continue it by `previous_response_id`.
 */
import type { ParsedRequest } from '../attempts/parsed-request.ts';
import { ApiError } from '../openai/api-errors.ts';
import { type Endpoint, RETRIEVE_UNCHARGED, storedResponseId } from '../openai/endpoints.ts';
import { quoteForMessage } from '../openai/quote-for-message.ts';
import { responseTarget } from '../openai/stored-response-target.ts';
import type { Route } from './proxy-host.ts';
import type { ProxyRequest } from './proxy-http-types.ts';
import type { StoredResponses } from './stored-response-index.ts';

interface Asked<C> {
  request: ProxyRequest;
  endpoint: Endpoint;
  caller: C;
}

const NOTHING = new Uint8Array(0);

/**
 * Reads a request for a stored response. Its model is that of the response. @throws ApiError 400; 404 if the caller's
 * project has no response of that id
 */
export async function readStoredRequest<C>(
  { request, endpoint, caller }: Asked<C>,
  responses: StoredResponses<C> | undefined,
): Promise<{ endpoint: Endpoint; parsed: ParsedRequest }> {
  const id = storedResponseId(request.path);
  const stored = id === undefined ? undefined : await responses?.find(caller, id);
  if (id === undefined || stored === undefined) throw unknownResponse(request.path);
  const { target, streaming } = responseTarget(id, endpoint.streams ? (request.query?.() ?? '') : '');
  return {
    endpoint: endpoint.streams && !stored.charged ? RETRIEVE_UNCHARGED : endpoint,
    parsed: {
      model: stored.model,
      streaming,
      edits: [],
      metadata: {},
      unseen: false,
      storedAt: stored.session,
      target,
      body: { kind: 'kept', bytes: NOTHING },
      release: () => {},
    },
  };
}

/**
 * Finds the node with the response that a request continues. @throws ApiError 400 `previous_response_not_found` if the
 * caller's project has no response of that id
 */
export async function findPrevious<C>(
  parsed: ParsedRequest,
  id: string,
  caller: C,
  responses: StoredResponses<C>,
): Promise<ParsedRequest> {
  const stored = await responses.find(caller, id);
  if (stored !== undefined) return Object.assign(parsed, { storedAt: stored.session });
  throw previousNotFound(`Previous response with id '${quoteForMessage(id)}' not found`);
}

/**
 * Restricts a route to the node that stored the response. @throws ApiError 400 or 404 if that node has left, or serves
 * the model no longer
 */
export function storedRoute(route: Route, session: string, { target }: Pick<ParsedRequest, 'target'>): Route {
  const { model } = route.request;
  const nodes = () => [...(route.nodes.model(model)?.ready ?? []), ...(route.nodes.model(model)?.suspected ?? [])];
  const gone = () => {
    if (nodes().some((node) => node.session === session)) return undefined;
    const why = `The node that stored the response no longer serves '${quoteForMessage(model)}'`;
    return target === undefined ? previousNotFound(why) : new ApiError('not_found', `${why}, so the response is lost.`);
  };
  const error = gone();
  if (error !== undefined) throw error;
  return {
    ...route,
    fallbacks: [],
    resumes: false,
    only: (node) => node.session === session && (route.only?.(node) ?? true),
    onlyScope: `response ${session}`,
    stale: gone,
  };
}

function unknownResponse(path: string): ApiError {
  const id = quoteForMessage(path.split('/')[3] ?? '');
  return new ApiError('not_found', `Response with id '${id}' not found.`, { param: 'id' });
}

function previousNotFound(why: string): ApiError {
  return new ApiError('previous_response_not_found', `${why}. Send the messages of the conversation as input.`, {
    param: 'previous_response_id',
  });
}
