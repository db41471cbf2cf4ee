import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ApiError, errorBodyFor, inBandError, toApiError } from '../../shared/openai/errors.ts';
import { headerSafe, headersToClient, lateComment, STREAM_HEADERS } from '../../shared/openai/headers.ts';
import type { Timing } from '../../shared/openai/timing.ts';
import type { ReadableResponse } from '../../shared/resume/resumable.ts';
import { AttemptError, apiErrorFor } from '../../shared/upstream/attempt-error.ts';
import { isEventStream, type ResponseStream } from '../../shared/upstream/response.ts';
import type { Choice } from './hand-over.ts';

/** A stream that has waited this long is opened with comments: proxies on the way cut what is silent for 100 s. */
export const PING_MS = 15_000;

/** Larger than any in-band message needs. */
const QUOTED_ERROR_MAX = 4096;

/** Statuses that cannot carry a body (RFC 9110 §6.4.1). */
const NO_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

const decoder = new TextDecoder();

export type Delivery = ReadableResponse<Choice, ResponseStream>;

export interface ResponseContext {
  response: ServerResponse;
  requestId: string;
  endpoint: Endpoint;
  model: string;
  timing: Timing;
  /** How long the request has waited for a free node, ms. */
  queuedMs(): number;
  /** A stream that waits for its node gets a comment so often. */
  pingMs: number;
  now(): number;
}

/** An error as a status; where the head has gone out there is nothing left to say. */
export function sendError(response: ServerResponse, error: unknown, requestId: string, endpoint?: Endpoint): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  const api = toApiError(error);
  const body = errorBodyFor(endpoint, api);
  response.writeHead(api.status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    'x-request-id': requestId,
    ...api.headers,
  });
  response.end(body);
}

/** The engine's answer as it is, under our headers. */
export async function deliver(delivery: Delivery, context: ResponseContext): Promise<void> {
  const { answer, chunks, complete } = delivery;
  const { node } = delivery.choice;
  const { head, status } = answer;
  const { response } = context;
  const headers: Record<string, string> = {
    ...headersToClient(head.headers),
    'x-request-id': context.requestId,
    'x-otela-node': node.session,
    'x-otela-provider': node.provider,
    'x-otela-attempts': String(delivery.attempts),
    'x-otela-served-model': headerSafe(delivery.choice.model),
    'server-timing': context.timing.header(head, context.queuedMs(), context.now()),
  };
  if (isEventStream(head)) Object.assign(headers, STREAM_HEADERS);
  else if (complete && !NO_BODY.has(status)) headers['content-length'] = String(lengthOf(chunks));
  response.writeHead(status, headers);
  await pump(delivery, context);
}

/** What was read, then the rest as it comes. A break after this is an in-band error without the terminal event. */
async function pump(delivery: Delivery, context: ResponseContext): Promise<void> {
  const { response, endpoint } = context;
  const { answer, chunks } = delivery;
  try {
    for (let held = chunks.shift(); held !== undefined; held = chunks.shift()) await write(response, held);
    for (;;) {
      const chunk = await delivery.read();
      if (chunk === undefined) return void response.end();
      await write(response, chunk);
    }
  } catch (error) {
    delivery.cancel();
    if (!(error instanceof AttemptError) || response.destroyed) return void response.destroy(); // the client left
    if (!isEventStream(answer.head)) return void response.destroy(); // never a clean end of half a body
    response.end(inBandError(endpoint, apiErrorFor(error)));
  }
}

/** Done when the client's socket has room again: nothing is read ahead of it. @throws when the client left */
async function write(response: ServerResponse, bytes: Uint8Array): Promise<void> {
  if (response.destroyed) throw new Error('the client left');
  if (response.write(bytes)) return;
  // A response that is destroyed says neither drain nor error, only close.
  const done = new AbortController();
  const { signal } = done;
  try {
    await Promise.race([once(response, 'drain', { signal }), once(response, 'close', { signal })]);
  } finally {
    done.abort();
  }
}

/**
 * A stream whose engine takes its time: 200 now, comments, then the answer. From here on every error is in-band.
 */
export async function deliverLate(pending: Promise<Delivery>, context: ResponseContext): Promise<void> {
  const { response, endpoint, pingMs } = context;
  response.writeHead(200, {
    'content-type': 'text/event-stream',
    ...STREAM_HEADERS,
    'x-request-id': context.requestId,
    'x-otela-served-model': headerSafe(context.model),
  });
  response.write(endpoint.ping);
  const pings = setInterval(() => response.write(endpoint.ping), pingMs);
  try {
    const delivery = await pending;
    clearInterval(pings);
    await continueLate(delivery, context);
  } catch (error) {
    if (response.destroyed) return;
    response.end(inBandError(endpoint, error instanceof AttemptError ? apiErrorFor(error) : toApiError(error)));
  } finally {
    clearInterval(pings);
  }
}

/** An engine's own error can no longer be a status: it is told in-band, in its words. */
async function continueLate(delivery: Delivery, context: ResponseContext): Promise<void> {
  const { answer, choice, attempts, chunks } = delivery;
  if (isEventStream(answer.head) && answer.status < 400) {
    await write(context.response, Buffer.from(lateComment(choice.node, attempts)));
    return pump(delivery, context);
  }
  delivery.cancel();
  const quoted = decoder.decode(Buffer.concat(chunks).subarray(0, QUOTED_ERROR_MAX));
  throw new ApiError('upstream_error', `The engine answered ${answer.status}: ${quoted}`);
}

function lengthOf(chunks: readonly Uint8Array[]): number {
  return chunks.reduce((sum, chunk) => sum + chunk.length, 0);
}
