/**
 * One request, from top to bottom: identify → read body → resolve model → filter → reserve → queue → dispatch →
 * respond. `record` receives each step. Every endpoint and every host uses this path.
 */

import { InBandErrorDetector } from '../attempts/in-band-error-detector.ts';
import { isRepeatable, type ParsedRequest } from '../attempts/parsed-request.ts';
import { ApiError, methodNotAllowed } from '../openai/api-errors.ts';
import { type Endpoint, endpointById, findEndpoint, pathNotFound } from '../openai/endpoints.ts';
import { headersToEngine } from '../openai/forwarded-headers.ts';
import { quoteForMessage } from '../openai/quote-for-message.ts';
import { StageTimer } from '../openai/request-stage-timer.ts';
import { RESPONSE_TARGET_HEADER } from '../openai/stored-response-target.ts';
import { QueueEntry } from '../queue/queue-entry.ts';
import { timesOut } from '../timing/start-timer.ts';
import type { HeaderList } from '../wire/header-codec.ts';
import { clientRequestId } from './client-request-id.ts';
import { discardBody } from './discard-body.ts';
import { dispatchQueued } from './dispatch-queued.ts';
import { allowsResuming, dispatchResumable } from './dispatch-resumable.ts';
import { errorResponse } from './error-response.ts';
import { filter, isWorthWaiting } from './filter-nodes.ts';
import { PRIORITY_HEADER, readPriority } from './policy-input.ts';
import type { HeldReservation, Host, RequestInfo, RequestRecorder, Route } from './proxy-host.ts';
import type { ProxyRequest, ProxyResponse } from './proxy-http-types.ts';
import { readBody } from './read-body.ts';
import type { RequestContext } from './request-context.ts';
import { ResponseWatch } from './response-watch.ts';
import { sealedRoute } from './sealed-requests.ts';
import { respond, respondWhenReady } from './send-response.ts';
import { findPrevious, readStoredRequest, storedRoute } from './stored-responses.ts';

/** Never rejects: errors are responses. */
export async function handleRequest<C>(request: ProxyRequest, host: Host<C>): Promise<ProxyResponse> {
  const { clock } = host;
  const givenId = clientRequestId(request);
  const requestId = givenId ?? clock.newId();
  // The internal name, from which attempts and records are named. If the client sent an id, the name is a different id,
  // because a client may send the same id twice.
  const name = givenId === undefined ? requestId : clock.newId();
  const info: RequestInfo<C> = { clientRequestId: requestId, name, startedAt: clock.now() };
  const record = host.record(request, info);
  const held: Releasables = { parsed: undefined, reservation: undefined };
  try {
    return await forward(request, host, info, record, held);
  } catch (error) {
    held.parsed?.release();
    held.reservation?.release({ attempts: 0, isComplete: false });
    record.refused(error);
    if (request.webSocket === undefined) await discardBody(request.body, host);
    return errorResponse(error, requestId, endpointById(info.endpoint ?? 0));
  }
}

/** The parts of a request that must be released if it fails. */
interface Releasables {
  parsed: ParsedRequest | undefined;
  reservation: HeldReservation | undefined;
}

async function forward<C>(
  request: ProxyRequest,
  host: Host<C>,
  info: RequestInfo<C>,
  record: RequestRecorder,
  held: Releasables,
): Promise<ProxyResponse> {
  const { clock } = host;
  const timing = new StageTimer(info.startedAt);
  const { name } = info;

  // Identify the caller.
  let endpoint = requireEndpoint(request);
  info.endpoint = endpoint.id;
  const identified = host.identify(request, endpoint);
  const caller = identified instanceof Promise ? await identified : identified;
  info.caller = caller;
  host.authorize(request, caller, endpoint);
  const priority = readPriority(request.header(PRIORITY_HEADER));

  // Read the body, or find the stored response.
  let parsed: ParsedRequest;
  if (endpoint.body === 'none') {
    await discardBody(request.body, host);
    ({ endpoint, parsed } = await readStoredRequest({ request, endpoint, caller }, host.responses));
    info.endpoint = endpoint.id;
  } else {
    const read = readBody(request, endpoint, host);
    parsed = read instanceof Promise ? await read : read;
  }
  held.parsed = parsed;
  const { previousResponseId } = parsed;
  if (previousResponseId !== undefined && host.responses !== undefined)
    await findPrevious(parsed, previousResponseId, caller, host.responses);
  info.model = parsed.model;
  info.streamed = parsed.streaming;
  const admittedAt = clock.steadyNow();
  timing.ingressDone(clock.now());

  // Resolve the model.
  const resolved = host.resolve(request, caller, parsed);
  const wide = resolved instanceof Promise ? await resolved : resolved;
  const listed = parsed.sealed === undefined ? wide : sealedRoute(wide, parsed.model, parsed.sealed);
  const route = parsed.storedAt === undefined ? listed : storedRoute(listed, parsed.storedAt, parsed);
  info.model = route.request.model;

  // Filter the nodes.
  const waitMs = filter(route, info, host);

  // Reserve the request's share of its limits.
  const entry = newQueueEntry(route, parsed, waitMs, host);
  const engineAttempts = { count: 0 };
  const attempts = () => engineAttempts.count;
  const reserved = host.reserve({ caller, request, endpoint, parsed, model: info.model, name, attempts });
  const reservation = reserved instanceof Promise ? await reserved : reserved;
  held.reservation = reservation;
  timing.lookupDone(clock.now());

  // Queue and dispatch.
  const { model } = route.request;
  const continues = parsed.streaming && allowsResuming(request, route);
  const context: RequestContext<C> = {
    host,
    request,
    caller,
    info,
    record,
    route,
    entry,
    waitMs,
    reservation,
    engineAttempts,
    priority,
    continues,
    admittedAt,
    timing,
    name,
    endpoint,
    inBand: new InBandErrorDetector(endpoint, parsed.sealed !== undefined),
    parsed,
    watch: ResponseWatch.of({ endpoint, parsed, caller }, host),
    headers: engineHeaders(request, info, parsed),
    receipt: route.receiptFor(model),
    timeouts: route.timeoutsFor(model),
  };
  const pending = continues ? dispatchResumable(context) : dispatchQueued(context);

  // Send the response.
  if (parsed.streaming && (await timesOut(pending, host.pingMs, clock.timer)))
    return respondWhenReady(pending, context);
  return respond(await pending, context);
}

/** @param waitMs maximum wait for a node */
function newQueueEntry(route: Route, parsed: ParsedRequest, waitMs: number, { memory }: Pick<Host, 'memory'>) {
  return new QueueEntry({
    busyNodes: memory.busy,
    queues: waitMs > 0,
    isWorthWaiting: (error) => isWorthWaiting(route, error),
    repeatable: () => isRepeatable(parsed),
    retriesMax: route.retriesMax,
  });
}

function engineHeaders(
  request: ProxyRequest,
  { name, clientRequestId: requestId }: RequestInfo,
  { target }: ParsedRequest,
): HeaderList {
  const headers = headersToEngine((header) => request.header(header), requestId === name ? undefined : requestId);
  return target === undefined ? headers : [...headers, [RESPONSE_TARGET_HEADER, target]];
}

function webSocketRequired(request: ProxyRequest): ApiError {
  const path = quoteForMessage(request.path);
  if (request.header('upgrade')?.toLowerCase() === 'websocket')
    return new ApiError(
      'upgrade_required',
      `${path} is not available here: this host accepts no WebSockets of clients.`,
    );
  return new ApiError('upgrade_required', `${path} requires a WebSocket.`, { headers: { upgrade: 'websocket' } });
}

/** @throws ApiError 404, 405, 426 */
function requireEndpoint(request: ProxyRequest): Endpoint {
  const { method, path } = request;
  const endpoint = findEndpoint(method, path);
  if (endpoint === undefined) throw pathNotFound(path);
  if (method === 'GET' && 'methodNotAllowed' in endpoint && request.header('upgrade')?.toLowerCase() === 'websocket')
    throw new ApiError('upgrade_required', `${quoteForMessage(path)} does not accept WebSockets; use POST.`);
  if ('methodNotAllowed' in endpoint) throw methodNotAllowed(method, path, endpoint.methodNotAllowed);
  if (endpoint.webSocket === true && request.webSocket === undefined) throw webSocketRequired(request);
  return endpoint;
}
