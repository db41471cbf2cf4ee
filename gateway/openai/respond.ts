import { isSlower } from '../../shared/collections/timer.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ApiError, inBandError, toApiError } from '../../shared/openai/errors.ts';
import { headerSafe, lateComment, STREAM_HEADERS } from '../../shared/openai/headers.ts';
import type { Timing } from '../../shared/openai/timing.ts';
import type { ReadableResponse } from '../../shared/resume/resumable.ts';
import { AttemptError, apiErrorFor } from '../../shared/upstream/attempt-error.ts';
import { UpstreamResponse as Handed } from '../../shared/upstream/dispatch.ts';
import { isEventStream } from '../../shared/upstream/response.ts';
import { after } from '../after.ts';
import type { HttpAnswer } from '../http.ts';
import type { Note } from '../observe/note.ts';
import { pipe } from '../pipe.ts';
import { NO_BODY } from '../tunnel/attempt.ts';
import type { Departure } from '../tunnel/departure.ts';
import type { Answer } from './answer.ts';
import type { Choice } from './hand-over.ts';
import { headersToClient } from './headers.ts';

/** A stream that has waited this long is opened with comments: proxies on the way cut what is silent for 100 s. */
export const PING_MS = 15_000;

/** Larger than any in-band message needs. */
const QUOTED_ERROR_MAX = 4096;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export type Delivery = ReadableResponse<Choice, Answer>;

export interface ResponseContext {
  requestId: string;
  endpoint: Endpoint;
  /** Of a stream that is opened before anybody answers; undefined: that is not known then. */
  model: string | undefined;
  timing: Timing;
  /** How long the request has waited for a free node, ms. */
  queuedMs(): number;
  note: Note;
  ctx: { waitUntil(work: Promise<unknown>): void };
  /** The body is not needed for another attempt any more. */
  release(): void;
}

/** The engine's answer as it is, under our headers. */
export function deliver(delivery: Delivery, context: ResponseContext): HttpAnswer {
  const { answer } = delivery;
  context.release();
  const headers = headersToClient(answer.head.headers);
  headers['x-request-id'] = context.requestId;
  headers['x-otela-node'] = delivery.choice.node.session;
  headers['x-otela-provider'] = delivery.choice.node.provider;
  headers['x-otela-attempts'] = String(delivery.attempts);
  headers['x-otela-served-model'] = headerSafe(delivery.choice.model);
  headers['server-timing'] = context.timing.header(answer.head, context.queuedMs(), Date.now());
  if (isEventStream(answer.head)) Object.assign(headers, STREAM_HEADERS);
  const { status, whole } = answer;
  context.note.answered(status, delivery.choice);
  if (whole !== undefined) return over(context, { status, headers, body: whole, length: answer.length });
  const only = delivery.chunks[0];
  if (NO_BODY.has(status)) return over(context, { status, headers, body: null });
  if (delivery.complete && delivery.chunks.length < 2) {
    return over(context, { status, headers, body: only ?? '' });
  }
  const { departure } = answer;
  if (delivery instanceof Handed && departure !== undefined && only !== undefined && delivery.chunks.length === 1) {
    context.ctx.waitUntil(watch(delivery, departure, context));
    return { status, headers, body: only, rest: departure.number };
  }
  return { status, headers, body: bodyOf(delivery, context) };
}

/** Nothing of it is read here any more. */
function over({ note }: ResponseContext, answer: HttpAnswer): HttpAnswer {
  note.over();
  return answer;
}

/** Until the rest has left by the outlet. */
async function watch(delivery: Handed<Choice, Answer>, departure: Departure, { note }: ResponseContext): Promise<void> {
  try {
    await delivery.through(() => departure.over());
    note.over();
  } catch (error) {
    if (error instanceof AttemptError) return note.broke(error.code, apiErrorFor(error).code);
    await delivery.cancel();
    note.left();
  }
}

/** What was read, then the rest as it comes. A break after this is an in-band error without the terminal event. */
function bodyOf(delivery: Delivery, context: ResponseContext): ReadableStream<Uint8Array> {
  const { readable, writable } = pipe();
  void pump(delivery, context, writable);
  return readable;
}

/** A write is done when the client's side took the bytes: nothing is read ahead of it. */
async function pump(
  delivery: Delivery,
  { endpoint, note }: ResponseContext,
  writable: WritableStream<Uint8Array>,
): Promise<void> {
  let writer = writable.getWriter();
  try {
    for (let held = delivery.chunks.shift(); held !== undefined; held = delivery.chunks.shift())
      await writer.write(held);
    if (delivery instanceof Handed && delivery.answer.passes) {
      writer.releaseLock();
      await delivery
        .through((answer) => answer.passTo(writable))
        .finally(() => {
          writer = writable.getWriter();
        });
    } else {
      for (let chunk = await delivery.read(); chunk !== undefined; chunk = await delivery.read())
        await writer.write(chunk);
    }
    note.over();
    await writer.close();
  } catch (error) {
    await delivery.cancel();
    if (!(error instanceof AttemptError)) return note.left();
    note.broke(error.code, apiErrorFor(error).code);
    if (!isEventStream(delivery.answer.head)) return await writer.abort(error); // never a clean end of half a body
    await writer.write(inBandError(endpoint, apiErrorFor(error))).catch(() => {});
    await writer.close().catch(() => {});
  }
}

function inBand(error: unknown): ApiError {
  return error instanceof AttemptError ? apiErrorFor(error) : toApiError(error);
}

/**
 * A stream whose engine takes its time: 200 now, a comment every 15 s, then the answer. From here on every error is in-band.
 */
export function deliverLate(pending: Promise<Delivery>, context: ResponseContext): HttpAnswer {
  const { endpoint, note } = context;
  let rest: ReadableStreamDefaultReader<Uint8Array> | undefined;
  let started = false;
  let left = false;
  const begin = pending.then(
    async (delivery) => {
      context.release();
      note.answered(200, delivery.choice); // that is what went out, whatever the engine says
      if (left) await delivery.cancel();
      const { node, model } = delivery.choice;
      const comment = lateComment(node, delivery.attempts, model === context.model ? undefined : model);
      rest = (await lateBody(delivery, context, comment)).getReader();
    },
    (error: unknown) => {
      context.release();
      const told = inBand(error);
      note.refusedLate(told);
      rest = oneChunk(inBandError(endpoint, told)).getReader();
    },
  );
  const stream = new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        if (!started) {
          started = true;
          return controller.enqueue(endpoint.ping);
        }
        if (rest === undefined && (await isSlower(begin, PING_MS, after))) return controller.enqueue(endpoint.ping);
        const next = await rest?.read();
        if (next === undefined || next.done) controller.close();
        else controller.enqueue(next.value);
      },
      cancel: async () => {
        left = true;
        if (rest === undefined) note.left();
        await rest?.cancel();
      },
    },
    { highWaterMark: 0 },
  );
  const headers = {
    'content-type': 'text/event-stream',
    ...STREAM_HEADERS,
    'x-request-id': context.requestId,
    ...(context.model === undefined ? {} : { 'x-otela-served-model': headerSafe(context.model) }),
  };
  return { status: 200, headers, body: stream };
}

/** An engine's own error can no longer be a status: it is told in-band, in its words. */
async function lateBody(
  delivery: Delivery,
  context: ResponseContext,
  comment: string,
): Promise<ReadableStream<Uint8Array>> {
  const { endpoint, note } = context;
  if (isEventStream(delivery.answer.head) && delivery.answer.status < 400) {
    delivery.chunks.unshift(encoder.encode(comment));
    return bodyOf(delivery, context);
  }
  const quoted = decoder.decode((await startOf(delivery)).subarray(0, QUOTED_ERROR_MAX));
  await delivery.cancel();
  const error = new ApiError('upstream_error', `The engine answered ${delivery.answer.status}: ${quoted}`);
  note.broke('engine_status', error.code);
  return oneChunk(inBandError(endpoint, error));
}

/** The first bytes of an answer that is not a stream. */
async function startOf({ answer, chunks }: Delivery): Promise<Uint8Array> {
  const first = answer.whole === undefined ? chunks[0] : await answer.read().catch(() => undefined);
  return first ?? new Uint8Array(0);
}

function oneChunk(bytes: Uint8Array): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start: (controller) => {
      controller.enqueue(bytes);
      controller.close();
    },
  });
}
