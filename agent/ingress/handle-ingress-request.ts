/**
 * Handles requests to the ingress: `GET` views of the registry, and requests to models, which go through the pipeline
 * in `shared/proxy`.
 */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError, methodNotAllowed } from '../../shared/openai/api-errors.ts';
import { type Endpoint, findEndpoint, pathNotFound } from '../../shared/openai/endpoints.ts';
import { clientRequestId } from '../../shared/proxy/client-request-id.ts';
import { discardBody } from '../../shared/proxy/discard-body.ts';
import { errorResponse } from '../../shared/proxy/error-response.ts';
import { handleRequest as proxy } from '../../shared/proxy/handle-request.ts';
import type { ProxyRequest, ProxyResponse } from '../../shared/proxy/proxy-http-types.ts';
import { SEAL_MAX_AGE_S, sealCandidates, sealCandidatesRequest } from '../../shared/proxy/seal-candidates-route.ts';
import { serverSink } from '../../shared/proxy/server-response-sink.ts';
import type { Trust } from '../../shared/routing/trusted-providers.ts';
import type { AgentRegistryView } from './agent-registry-view.ts';
import type { IngressHost } from './ingress-host.ts';
import type { IngressKey } from './ingress-key.ts';
import { IngressRequest } from './ingress-request.ts';
import type { RegistryChangeStreams } from './registry-change-streams.ts';
import { answerRegistryRequest, isRegistryRoute } from './registry-routes.ts';
import type { RunningRequests } from './running-requests.ts';
import type { UnauthenticatedLimit } from './unauthenticated-limit.ts';

/** Writes the pipeline's response to its client. Resolves at its end, even if the client disconnected. */
async function writeResponse(
  message: IncomingMessage,
  response: ServerResponse,
  { status, headers, body }: ProxyResponse,
): Promise<void> {
  const sink = serverSink(response);
  if (response.destroyed) return typeof body === 'function' ? body(sink) : undefined;
  // Closes the connection: otherwise the unread rest of the body would be parsed as the next request.
  if (!message.complete) response.setHeader('connection', 'close');
  if (body instanceof ReadableStream) throw new Error('the mesh does not carry this kind of body');
  if (typeof body === 'function') {
    response.writeHead(status, headers);
    return body(sink);
  }
  const length = body === null ? {} : { 'content-length': Buffer.byteLength(body) };
  response.writeHead(status, { ...headers, ...length });
  response.end(body ?? undefined);
}

/** `GET /v1/otela/seal` lists the nodes to which a client may seal a request, as at a gateway. */
const SEAL_PATH = '/v1/otela/seal';

/** @throws ApiError for the same reasons as for an unsealed request */
function answerSeal(
  request: ProxyRequest,
  query: URLSearchParams,
  host: IngressHost,
  requestId: string,
): ProxyResponse {
  if (request.method !== 'GET') throw methodNotAllowed(request.method, SEAL_PATH, ['GET']);
  const route = host.resolve(request, host.identify(request), sealCandidatesRequest(query.get('model')));
  const listed = sealCandidates({ ...route, waitMs: 0 }, host, query.getAll('provider'));
  const body = Buffer.from(JSON.stringify(listed));
  const headers = {
    'content-type': 'application/json',
    'cache-control': `private, max-age=${SEAL_MAX_AGE_S}`,
    'x-request-id': requestId,
  };
  return { status: 200, headers, body };
}

/** Maximum bytes of a refused body that are read from a client without a valid key. */
const UNAUTHENTICATED_MAX_BYTES = 1024 * 1024;

/** What the ingress needs to answer requests. */
export interface IngressServices {
  key: IngressKey;
  unauthenticated: UnauthenticatedLimit;
  running: RunningRequests;
  watchers: RegistryChangeStreams;
  registry: AgentRegistryView;
  host: IngressHost;
  /** The trusted providers for requests that name none. */
  trust(): Trust;
  log(line: string): void;
}

/** Handles every request to the ingress. Never rejects. */
export async function handleIngressRequest(
  message: IncomingMessage,
  response: ServerResponse,
  services: IngressServices,
): Promise<void> {
  const url = urlOf(message);
  const request = new IngressRequest(message, response, url?.pathname ?? '');
  try {
    services.key.require(message.headers); // first, so that nothing is disclosed without a key
    services.unauthenticated.remove(message.socket);
    if (url === null) throw pathNotFound(message.url ?? '');
    if (isRegistryRoute(url.pathname)) return view(message, response, url, services, requestIdOf(request));
    if (url.pathname === SEAL_PATH) {
      const answer = answerSeal(request, url.searchParams, services.host, requestIdOf(request));
      return await writeResponse(message, response, answer);
    }
    const over = services.running.begin();
    await proxy(request, services.host)
      .then((answer) => writeResponse(message, response, answer))
      .finally(over);
  } catch (error) {
    await refuse(error, { message, response, request, services });
  }
}

function view(
  message: IncomingMessage,
  response: ServerResponse,
  url: URL,
  services: IngressServices,
  requestId: string,
): void {
  const { registry, watchers } = services;
  answerRegistryRequest(message, response, url, {
    registry,
    watchers,
    requestId,
    trust: services.trust(),
    now: Date.now(),
  });
}

interface Refused {
  message: IncomingMessage;
  response: ServerResponse;
  request: IngressRequest;
  services: IngressServices;
}

async function refuse(error: unknown, { message, response, request, services }: Refused): Promise<void> {
  if (!(error instanceof ApiError)) services.log(`ingress: ${error instanceof Error ? error.stack : String(error)}`);
  const stranger = error instanceof ApiError && error.code === 'invalid_api_key';
  await discardBody(request.body, services.host, stranger ? UNAUTHENTICATED_MAX_BYTES : undefined);
  // After the head was sent, no error response is possible.
  if (response.headersSent) return void response.destroy();
  await writeResponse(message, response, errorResponse(error, requestIdOf(request), endpointOf(request)));
}

function requestIdOf(request: IngressRequest): string {
  return clientRequestId(request) ?? randomUUID();
}

/** The endpoint, which decides the format of errors. */
function endpointOf({ method, path }: IngressRequest): Endpoint | undefined {
  const endpoint = findEndpoint(method, path);
  return endpoint === undefined || 'methodNotAllowed' in endpoint ? undefined : endpoint;
}

/** The host is always this ingress; the client's Host header is ignored. */
function urlOf({ url = '/' }: IncomingMessage): URL | null {
  return URL.parse(url.startsWith('/') ? `http://ingress${url}` : url);
}
