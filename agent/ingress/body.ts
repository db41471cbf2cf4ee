import type { IncomingMessage } from 'node:http';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import type { BodyMemory, BodyReservation } from '../../shared/proxy/body-memory.ts';
import type { BudgetShare, ByteBudget } from '../../shared/upstream/byte-budget.ts';
import { OpaqueBody } from '../../shared/upstream/opaque-body.ts';
import {
  opaqueFields,
  type ParsedRequest,
  parseBody,
  type RequestBody,
  requireIdentityEncoding,
} from '../../shared/upstream/parsed-request.ts';

/** Always kept for a retry, whatever the budget. */
const KEPT_ALWAYS_BYTES = 1024 * 1024;
const LIMIT_BYTES = 32 * 1024 * 1024 + KEPT_ALWAYS_BYTES;

/** Memory for the first bytes of a body. */
const FIRST_BYTES = 16 * 1024;

/** A client that sends nothing for so long in the middle of its body. */
const STALLED_MS = 30_000;
/** How soon a body that waits for room sees that there is some. */
const ROOM_EVERY_MS = 100;

/** What bodies may hold. */
export interface BodyRoom {
  /** Above 1 MiB of each. */
  budget: ByteBudget;
  /** Of those on their way in, up to 1 MiB of each. */
  uploads: BodyMemory;
}

const NOTHING: RequestBody = { kind: 'kept', bytes: new Uint8Array(0) };

/**
 * Reads and looks into a body, once. With `x-otela-model` it is not looked into and, above 1 MiB, not read here at all.
 * @throws ApiError 400, 408, 413, 415, 503 server_is_overloaded when too much is kept already
 */
export async function takeBody(request: IncomingMessage, endpoint: Endpoint, room: BodyRoom): Promise<ParsedRequest> {
  const declared = Number(request.headers['content-length'] ?? Number.NaN);
  requireIdentityEncoding(request.headers['content-encoding']);
  const opaqueModel = request.headers['x-otela-model'];
  if (typeof opaqueModel === 'string') return takeOpaque(request, endpoint, opaqueModel, declared, room);
  if (declared > LIMIT_BYTES) throw tooLarge();
  const multipart = /^multipart\/form-data\b/i.test(request.headers['content-type'] ?? '');
  if (endpoint.body === 'multipart' && !multipart) {
    throw new ApiError('unsupported_media_type', `${endpoint.path} takes multipart/form-data.`);
  }
  const share = room.budget.share();
  try {
    const bytes = await readBounded(request, declared, share, room.uploads);
    const intake: ParsedRequest = {
      ...parseBody(bytes, request.headers['content-type'] ?? '', endpoint),
      body: { kind: 'kept', bytes },
      release: () => {
        share.release();
        intake.body = NOTHING; // an answer may take an hour, and megabytes of prompt would wait with it
      },
    };
    return intake;
  } catch (error) {
    share.release();
    throw error;
  }
}

async function takeOpaque(
  request: IncomingMessage,
  endpoint: Endpoint,
  model: string,
  declared: number,
  room: BodyRoom,
): Promise<ParsedRequest> {
  if (model === '' || model.length > 256) {
    throw new ApiError('invalid_request', 'x-otela-model must name a model.', { param: 'x-otela-model' });
  }
  const known = { ...opaqueFields(endpoint, model, request.headers['x-otela-stream']), release: () => {} };
  if (declared <= KEPT_ALWAYS_BYTES) {
    const bytes = await readBounded(request, declared, room.budget.share(), room.uploads);
    return { ...known, body: { kind: 'kept', bytes } };
  }
  return {
    ...known,
    body: {
      kind: 'opaque',
      opaque: new OpaqueBody(webStream(request)),
      length: Number.isNaN(declared) ? undefined : declared,
    },
  };
}

/** Pulled as the node takes it: what is not asked for stays in the client's socket. */
function webStream(request: IncomingMessage): ReadableStream<Uint8Array> {
  const chunks = request.iterator({ destroyOnReturn: false });
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
    },
    { highWaterMark: 0 },
  );
}

/**
 * The whole body, in one buffer that grows: of a body sent byte by byte a list of its pieces would be a hundred times its size.
 * Memory grows with what comes, not with what is announced. What is above 1 MiB is taken from the budget before it is read.
 */
async function readBounded(
  request: IncomingMessage,
  declared: number,
  share: BudgetShare,
  uploads: BodyMemory,
): Promise<Uint8Array> {
  const upload = uploads.begin(performance.now());
  const stalled = setTimeout(() => request.destroy(new Error('the body stalled')), STALLED_MS);
  try {
    const came = () => stalled.refresh();
    // All of it at once: bodies that hold a part each and wait for the rest would wait for one another.
    await roomFor(upload, Math.min(Number.isNaN(declared) ? LIMIT_BYTES : declared, KEPT_ALWAYS_BYTES), came);
    return await readChunks(request, declared, share, upload, came);
  } finally {
    clearTimeout(stalled);
    upload.end();
  }
}

async function readChunks(
  request: IncomingMessage,
  declared: number,
  share: BudgetShare,
  upload: BodyReservation,
  came: () => void,
): Promise<Uint8Array> {
  const most = Number.isNaN(declared) ? LIMIT_BYTES : declared;
  let bytes = new Uint8Array(0);
  let length = 0;
  // Left open on an error: the answer goes out on the same connection.
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    came();
    const needed = length + chunk.length;
    if (needed > LIMIT_BYTES) throw tooLarge();
    if (needed > bytes.length) {
      const size = Math.max(needed, Math.min(most, Math.max(FIRST_BYTES, bytes.length * 2)));
      share.claim(size - KEPT_ALWAYS_BYTES);
      const grown = new Uint8Array(size);
      grown.set(bytes.subarray(0, length));
      bytes = grown;
    }
    bytes.set(chunk, length);
    length = needed;
    upload.received(chunk.length, performance.now());
    if (upload.givenUp) throw tooSlow();
  }
  return bytes.subarray(0, length);
}

/** Waits until `bytes` may be held: meanwhile the client's own connection holds it back. @throws ApiError 408, 503 */
async function roomFor(upload: BodyReservation, bytes: number, came: () => void): Promise<void> {
  for (let waitedMs = 0; !upload.hold(bytes, performance.now()); waitedMs += ROOM_EVERY_MS) {
    if (waitedMs >= STALLED_MS)
      throw new ApiError('server_is_overloaded', 'Too many request bodies are on their way in; try again shortly.');
    await new Promise<void>((resolve) => setTimeout(resolve, ROOM_EVERY_MS));
    came(); // it is not the client that stands still
  }
  if (upload.givenUp) throw tooSlow();
}

function tooSlow(): ApiError {
  return new ApiError('request_timeout', 'The request body came too slowly while others waited for room.');
}

function tooLarge(): ApiError {
  const mib = Math.floor(LIMIT_BYTES / 1024 / 1024);
  return new ApiError(
    'request_too_large',
    `The request body is larger than ${mib} MiB. Name the model in x-otela-model to stream a body of any size.`,
  );
}

/** An error waits for at most this much of a body that nobody wants, and this long. */
const DISCARD_MAX_BYTES = 64 * 1024 * 1024;
const DISCARD_MAX_MS = 10_000;
/** Of somebody who has shown no key. */
export const STRANGER_MAX_BYTES = 1024 * 1024;

/**
 * Reads the rest of a request that is refused and throws it away. An answer that goes out while its client still sends ends the
 * connection with a reset, and most clients then report that instead of the answer. Bounded: false where the client sends on.
 */
export async function discardBody(request: IncomingMessage, maxBytes = DISCARD_MAX_BYTES): Promise<boolean> {
  if (request.readableEnded || request.destroyed) return true;
  const late = setTimeout(() => request.destroy(), DISCARD_MAX_MS);
  let bytes = 0;
  try {
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      bytes += chunk.length;
      if (bytes > maxBytes) return false;
    }
    return true;
  } catch {
    return false; // the client left
  } finally {
    clearTimeout(late);
  }
}
