/** Sends the engine's response to the client. After the first byte, errors are sent inside the response. */

import { AttemptError, apiErrorFor } from '../attempts/attempt-error.ts';
import { UpstreamResponse } from '../attempts/dispatch.ts';
import {
  isEventStream,
  NO_BODY,
  type ResponseOffloadHandle,
  type ResponseStream,
} from '../attempts/started-response.ts';
import { concat } from '../collections/concat.ts';
import { ApiError, toApiError } from '../openai/api-errors.ts';
import { encodeHeaderValue, headersComment, headersToClient, STREAM_HEADERS } from '../openai/forwarded-headers.ts';
import { waitComment } from '../openai/wait-comment.ts';
import type { ReadableResponse } from '../resume/continued-response.ts';
import type { NodeChoice } from '../routing/choose-node.ts';
import { isSealedType, SEALED_STREAM_TYPE } from '../seal/hpke-suite.ts';
import { neverRejects } from '../timing/in-background.ts';
import { timesOut } from '../timing/start-timer.ts';
import { coldWaitReason, findColdModel } from './cold-model.ts';
import { findModelStart } from './loading-model.ts';
import type { RequestResult } from './proxy-host.ts';
import type { ProxyResponse, ResponseSink } from './proxy-http-types.ts';
import type { RequestContext } from './request-context.ts';

/** Maximum number of bytes of an engine's error that are quoted in an in-band error. */
const QUOTED_ERROR_MAX_BYTES = 4096;
/** Maximum time that a comment waits for the queue position, which takes one round trip. */
const POSITION_MS = 1_000;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Result of a request that an engine refused. A usage report that arrives later still counts. */
const REFUSED: RequestResult = { attempts: 0, isComplete: false };

type NodeResponse = ReadableResponse<NodeChoice, ResponseStream>;

function endOf<C>({ engineAttempts }: RequestContext<C>, isComplete: boolean): RequestResult {
  return { attempts: engineAttempts.count, isComplete };
}

/** The engine's response with our headers. */
export function respond<C>(response: NodeResponse, context: RequestContext<C>): ProxyResponse {
  const { answer, choice, chunks } = response;
  const { record, reservation } = context;
  const { status, whole, offload } = answer;
  context.parsed.release();
  const headers = headersFor(response, context);
  record.responseStarted(status, choice);
  context.watch?.begin({ status, ...watchedNode(response) }, chunks[0]);
  if (status < 400 && whole === undefined && !response.complete && !NO_BODY.has(status)) {
    const first = chunks.length === 1 ? chunks[0] : undefined;
    if (offload === undefined || first === undefined || !(response instanceof UpstreamResponse)) {
      return { status, headers, body: (sink) => pump(response, sink, context) };
    }
    neverRejects(watch(response, offload, context));
    return { status, headers, body: first, rest: offload.rest };
  }
  // An engine's refusal costs no tokens.
  reservation?.release(status < 400 ? endOf(context, true) : REFUSED);
  if (whole === undefined && !response.complete && !NO_BODY.has(status)) {
    return { status, headers, body: (sink) => pump(response, sink, context) };
  }
  record.responseEnded();
  for (const chunk of chunks) context.watch?.pass(chunk);
  context.watch?.end();
  if (whole !== undefined) return { status, headers, body: whole, length: answer.length };
  return { status, headers, body: NO_BODY.has(status) ? null : concat(chunks) };
}

function watchedNode({ answer, choice }: NodeResponse) {
  return { session: choice.node.session, model: choice.model, isStream: isEventStream(answer.head) };
}

function headersFor<C>(response: NodeResponse, context: RequestContext<C>): Record<string, string> {
  const { answer, choice, attempts } = response;
  const { host, info, timing, entry, reservation } = context;
  const headers = headersToClient(answer.head.headers);
  headers['x-request-id'] = info.clientRequestId;
  const { requestIdHeader } = context.endpoint;
  if (requestIdHeader !== undefined) headers[requestIdHeader] = info.clientRequestId;
  headers['x-otela-node'] = choice.node.session;
  headers['x-otela-provider'] = choice.node.provider;
  headers['x-otela-attempts'] = String(attempts);
  headers['x-otela-served-model'] = encodeHeaderValue(choice.model);
  headers['server-timing'] = timing.header(answer.head, entry.queuedMs, host.clock.now());
  if (isEventStream(answer.head)) Object.assign(headers, STREAM_HEADERS);
  if (context.route.headers !== undefined) Object.assign(headers, context.route.headers);
  if (reservation !== undefined) Object.assign(headers, reservation.headers);
  return headers;
}

/**
 * Writes the chunks that were read, then the rest as it arrives. If an event stream breaks, the client gets an in-band
 * error and no terminal event. If any other response breaks, it is aborted.
 */
async function pump<C>(response: NodeResponse, sink: ResponseSink, context: RequestContext<C>): Promise<void> {
  const { record, reservation, inBand, watch } = context;
  try {
    const { chunks } = response;
    for (let held = chunks.shift(); held !== undefined; held = chunks.shift()) {
      inBand.pass(held);
      watch?.pass(held);
      const written = sink.write(held);
      if (written !== undefined) await written;
    }
    for (let chunk = await response.read(); chunk !== undefined; chunk = await response.read()) {
      inBand.pass(chunk);
      watch?.pass(chunk);
      const written = sink.write(chunk);
      if (written !== undefined) await written;
    }
    record.responseEnded();
    watch?.end();
    reservation?.release(endOf(context, true)); // Before the end, so that the client's next request does not overtake the release.
    await sink.end();
  } catch (error) {
    reservation?.release(endOf(context, false));
    await response.cancel();
    if (!(error instanceof AttemptError)) record.clientDisconnected();
    else record.responseBroke(error.code, apiErrorFor(error).code);
    if (!(error instanceof AttemptError) || !isEventStream(response.answer.head)) return await abort(sink, error);
    await finish(sink, inBand.error(apiErrorFor(error)));
  }
}

/** Breaks the response off, because half a body must never end cleanly. */
async function abort(sink: ResponseSink, reason: unknown): Promise<void> {
  try {
    await sink.abort(reason);
  } catch {
    // The response is already broken.
  }
}

async function finish(sink: ResponseSink, last: Uint8Array | undefined): Promise<void> {
  try {
    if (last !== undefined) await sink.write(last);
    await sink.end();
  } catch {
    // The client disconnected.
  }
}

/** Watches an offloaded response until the host has written its rest. */
async function watch<C>(
  response: UpstreamResponse<NodeChoice, ResponseStream>,
  offload: ResponseOffloadHandle,
  context: RequestContext<C>,
): Promise<void> {
  const { record, reservation } = context;
  let isComplete = false;
  try {
    await response.through(() => offload.over());
    isComplete = true;
    record.responseEnded();
  } catch (error) {
    if (error instanceof AttemptError) return record.responseBroke(error.code, apiErrorFor(error).code);
    await response.cancel();
    record.clientDisconnected();
  } finally {
    reservation?.release(endOf(context, isComplete));
  }
}

/** Responds to a stream with a slow engine: 200 now, a comment every 15 s, then the response. */
export function respondWhenReady<C>(pending: Promise<NodeResponse>, context: RequestContext<C>): ProxyResponse {
  const { info, route, reservation } = context;
  const { requestIdHeader } = context.endpoint;
  const headers = {
    'content-type': context.parsed.sealed === undefined ? 'text/event-stream' : SEALED_STREAM_TYPE,
    ...STREAM_HEADERS,
    'x-request-id': info.clientRequestId,
    ...(requestIdHeader !== undefined && { [requestIdHeader]: info.clientRequestId }),
    // The header is set only if the route has no fallbacks. Otherwise it is not known yet which model will answer.
    ...(route.fallbacks.length === 0 && { 'x-otela-served-model': encodeHeaderValue(route.request.model) }),
    ...route.headers,
    ...reservation?.headers,
  };
  pending.then(context.parsed.release, context.parsed.release);
  return { status: 200, headers, body: (sink) => pumpLate(pending, sink, context) };
}

async function pumpLate<C>(
  pending: Promise<NodeResponse>,
  sink: ResponseSink,
  context: RequestContext<C>,
): Promise<void> {
  const { host, inBand, record, reservation } = context;
  let response: NodeResponse;
  try {
    do {
      await refreshCold(context);
      await sink.write(await waitingComment(context));
    } while (await timesOut(pending, host.pingMs, host.clock.timer));
  } catch {
    record.clientDisconnected();
    reservation?.release(endOf(context, false));
    pending.then(
      (late) => late.cancel(),
      () => {},
    );
    return;
  }
  try {
    response = await pending;
  } catch (error) {
    const apiError = error instanceof AttemptError ? apiErrorFor(error) : toApiError(error);
    reservation?.release(REFUSED);
    record.refusedLate(apiError, error);
    return finish(sink, inBand.error(apiError));
  }
  const { status } = response.answer;
  context.watch?.begin({ status, ...watchedNode(response) }, response.chunks[0]);
  record.responseStarted(200, response.choice); // The status is 200, because that was already sent.
  if (isEventStream(response.answer.head) && status < 400) {
    if (context.parsed.sealed === undefined) response.chunks.unshift(lateHead(response, context));
    return pump(response, sink, context);
  }
  // A sealed response carries its status inside the seal, so it is sent unchanged.
  if (isSealedType(contentTypeOf(response))) return pump(response, sink, context);
  const error = await quotedError(response);
  record.responseBroke('engine_status', error.code);
  reservation?.release(REFUSED);
  await finish(sink, inBand.error(error));
}

/** Updates the model's state for the next comment. If that fails, the old state is used. */
async function refreshCold<C>({ host, route }: RequestContext<C>): Promise<void> {
  if (findColdModel(route) === undefined) return;
  try {
    await host.refresh([route.request.model, ...route.fallbacks]);
  } catch {
    // The wait continues with the old state.
  }
}

/**
 * The comment that says why nothing has arrived yet. If the reason is unknown, or if the endpoint's clients do not skip
 * comments, it is the endpoint's ping.
 */
async function waitingComment<C>(context: RequestContext<C>): Promise<Uint8Array> {
  const { inBand, entry, route, host } = context;
  if (!inBand.takesComments) return inBand.ping;
  const cold = findColdModel(route);
  if (cold !== undefined) return encoder.encode(waitComment(coldWaitReason(cold)));
  const models = [route.request.model, ...route.fallbacks];
  const start = findModelStart(route.nodes, models, route.trust, host.clock.now());
  if (start !== undefined) {
    const { runningMs, usualMs } = start;
    const percent = usualMs === undefined ? undefined : Math.min(99, (100 * runningMs) / Math.max(1, usualMs));
    return encoder.encode(waitComment(percent === undefined ? { reason: 'loading' } : { reason: 'loading', percent }));
  }
  if (!entry.queued) return inBand.ping;
  const position = await positionOf(context);
  return encoder.encode(waitComment(position === undefined ? { reason: 'queued' } : { reason: 'queued', position }));
}

/**
 * The position in the queue. If the queue does not reply in time, the comment is sent without the number. Never
 * rejects.
 */
async function positionOf<C>({ host, route, name }: RequestContext<C>): Promise<number | undefined> {
  const asked = Promise.resolve(host.positionInQueue(route.request.model, name)).catch(() => undefined);
  return (await timesOut(asked, POSITION_MS, host.clock.after)) ? undefined : asked;
}

/**
 * A comment with the information that the headers would have carried if the response had not begun before the node was
 * known.
 */
function lateHead<C>({ choice, attempts }: NodeResponse, { route }: RequestContext<C>): Uint8Array {
  const apiError = route.fallbacks.length === 0 ? route.request.model : undefined;
  return encoder.encode(headersComment(choice.node, attempts, choice.model === apiError ? undefined : choice.model));
}

function contentTypeOf({ answer }: NodeResponse): string | undefined {
  return answer.head.headers.find(([name]) => name === 'content-type')?.[1];
}

/** The engine's error as an in-band error with the engine's message. The engine's status can no longer be sent. */
async function quotedError(response: NodeResponse): Promise<ApiError> {
  const { answer, chunks } = response;
  const first = chunks[0] ?? (await answer.read().catch(() => undefined)) ?? new Uint8Array(0);
  await response.cancel();
  const quoted = decoder.decode(first.subarray(0, QUOTED_ERROR_MAX_BYTES));
  return new ApiError('upstream_error', `The engine answered ${answer.status}: ${quoted}`);
}
