/** Reads a request's body once, within limits, and parses the fields that the gateway needs. */

import type { BudgetShare } from '../attempts/byte-budget.ts';
import { OpaqueBody } from '../attempts/opaque-body.ts';
import { opaqueFields, type ParsedRequest, parseBody, requireIdentityEncoding } from '../attempts/parsed-request.ts';
import { ApiError } from '../openai/api-errors.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import type { BodyReservation } from './body-memory.ts';
import { BodyPace } from './body-pace.ts';
import type { BodyLimits, HostClock } from './proxy-host.ts';
import type { BodyReader, ProxyRequest } from './proxy-http-types.ts';
import { readSealed } from './sealed-requests.ts';

/** Bytes of each body that are always kept for a retry, independent of the budget. */
export const RETRY_BODY_MIN_BYTES = 1024 * 1024;

/** Bytes of a client's messages that are kept for another attempt, until the engine accepts the session. */
const MESSAGES_RETRY_MAX_BYTES = 64 * 1024;
/** Interval at which a body that receives nothing checks whether it must end. */
const POLL_MS = 1_000;
/** Interval at which a body that waits for memory tries again. Hundreds may wait, and each try visits all of them. */
const ROOM_EVERY_MS = 100;
/** Maximum wait of a body for memory before 503. SDKs give up after a minute if the request is not read. */
const ROOM_WITHIN_MS = 30_000;
/** Size of a body's first buffer. */
const FIRST_BYTES = 16 * 1024;

export const MODEL_MAX_CHARS = 256;
const NOTHING = new Uint8Array(0);

interface Reading {
  readonly bodies: BodyLimits;
  readonly clock: HostClock;
}

/**
 * Reads and parses the body. If the request has `x-otela-model`, the body is not parsed, and is not read before a node
 * is found; above 1 MiB it is then streamed.
 * @throws ApiError 400, 408, 413, 415; 503 `server_is_overloaded` if too many bytes are buffered
 */
export function readBody(
  request: ProxyRequest,
  endpoint: Endpoint,
  reading: Reading,
): ParsedRequest | Promise<ParsedRequest> {
  if (endpoint.webSocket === true) return messagesOf(request, endpoint);
  const declared = Number(request.header('content-length') ?? Number.NaN);
  requireIdentityEncoding(request.header('content-encoding'));
  const opaqueModel = request.header('x-otela-model');
  if (opaqueModel !== null && opaqueModel !== undefined) {
    return opaqueRequest(request, endpoint, { model: opaqueModel, declared }, reading);
  }
  readSealed(request.header.bind(request), undefined, reading.clock.now() / 1000);
  const { maxBytes } = reading.bodies;
  const contentType = request.header('content-type') ?? '';
  if (declared > maxBytes) throw tooLarge(maxBytes);
  requireType(contentType, endpoint);
  const { whole } = request.body;
  if (whole !== undefined) return parsedOf(whole, contentType, endpoint, reading.bodies);
  return readParsed(request, endpoint, { contentType, declared }, reading);
}

async function readParsed(
  request: ProxyRequest,
  endpoint: Endpoint,
  { contentType, declared }: { contentType: string; declared: number },
  reading: Reading,
): Promise<ParsedRequest> {
  const { bodies } = reading;
  const share = declared <= RETRY_BODY_MIN_BYTES ? undefined : bodies.kept.share(bodies.keptMaxBytes);
  if (!Number.isNaN(declared)) share?.requireRoom(declared - RETRY_BODY_MIN_BYTES);
  // On Workers the request ends immediately when the client disconnects, without running a `finally`.
  if (share !== undefined) request.client.on(() => share.release());
  try {
    const bytes = await readBounded(request, { declared, limit: bodies.maxBytes }, share, reading);
    return parsedOf(bytes, contentType, endpoint, bodies, share);
  } catch (error) {
    share?.release();
    throw error;
  }
}

function parsedOf(
  bytes: Uint8Array,
  contentType: string,
  endpoint: Endpoint,
  { isUtf8 }: BodyLimits,
  share?: BudgetShare,
): ParsedRequest {
  const parsed: ParsedRequest = {
    ...parseBody(bytes, contentType, endpoint, isUtf8),
    body: { kind: 'kept', bytes },
    release: () => {
      share?.release();
      // Frees the body when it is no longer needed. A response may take an hour, and would otherwise keep megabytes of
      // prompt in memory.
      parsed.body = { kind: 'kept', bytes: NOTHING };
    },
  };
  return parsed;
}

function opaqueRequest(
  request: ProxyRequest,
  endpoint: Endpoint,
  { model, declared }: { model: string; declared: number },
  reading: Reading,
): ParsedRequest {
  if (model === '' || model.length > MODEL_MAX_CHARS) {
    throw new ApiError('invalid_request', `x-otela-model must name a model in at most ${MODEL_MAX_CHARS} characters.`, {
      param: 'x-otela-model',
    });
  }
  const sealed = readSealed(request.header.bind(request), model, reading.clock.now() / 1000);
  const known = opaqueFields(endpoint, model, request.header('x-otela-stream'));
  const fields = { ...known, ...(sealed !== undefined && { sealed }), release: () => {} };
  const { whole } = request.body;
  if (whole !== undefined) return { ...fields, body: { kind: 'kept', bytes: whole } };
  if (!(declared <= RETRY_BODY_MIN_BYTES)) {
    const reader = request.body.reader();
    const length = Number.isNaN(declared) ? undefined : declared;
    if (reader !== undefined) {
      const pace = new BodyPace(reading.bodies.stallMs, reading.clock);
      const opaque = new OpaqueBody({ read: () => pace.next(reader.read()), cancel: () => reader.cancel() });
      return { ...fields, body: { kind: 'opaque', opaque, length }, release: () => opaque.release() };
    }
  }
  const parsed: ParsedRequest = { ...fields, body: { kind: 'kept', bytes: NOTHING } };
  let read: Promise<void> | undefined;
  parsed.fill = () => {
    read ??= readBounded(request, { declared, limit: RETRY_BODY_MIN_BYTES }, undefined, reading).then((bytes) => {
      parsed.body = { kind: 'kept', bytes };
    });
    return read;
  };
  return parsed;
}

/**
 * The messages of a WebSocket. They arrive for as long as the session lasts, so no minimum rate applies.
 * @throws ApiError 400
 */
function messagesOf(request: ProxyRequest, endpoint: Endpoint): ParsedRequest {
  const { model = '' } = request.webSocket ?? {};
  if (model === '' || model.length > MODEL_MAX_CHARS) {
    const message = `The URL must name a model in at most ${MODEL_MAX_CHARS} characters: ${endpoint.path}?model=NAME.`;
    throw new ApiError('invalid_request', message, { param: 'model' });
  }
  const reader = request.body.reader();
  if (reader === undefined) throw new ApiError('invalid_request', 'The request has no WebSocket.');
  const opaque = new OpaqueBody(reader, MESSAGES_RETRY_MAX_BYTES);
  return {
    ...opaqueFields(endpoint, model, undefined),
    // The host reads the messages that name a model.
    unseen: false,
    inUrl: true,
    body: { kind: 'opaque', opaque, length: undefined },
    release: () => opaque.release(),
  };
}

function requireType(contentType: string, endpoint: Endpoint): void {
  if (endpoint.body === 'multipart' && !/^multipart\/form-data\b/i.test(contentType)) {
    throw new ApiError('unsupported_media_type', `${endpoint.path} requires multipart/form-data.`);
  }
}

/** `declared`: value of the request's content-length; NaN if there is none. */
interface Size {
  declared: number;
  limit: number;
}

/**
 * Reads a body into memory. The buffer grows with the received bytes, not with the declared length. The first MiB of a
 * body counts in the memory of incomplete bodies, until the body is complete. The bytes above it count in `share`.
 */
async function readBounded(
  request: ProxyRequest,
  size: Size,
  share: BudgetShare | undefined,
  { bodies, clock }: Reading,
): Promise<Uint8Array> {
  const reader = request.body.reader();
  if (reader === undefined) return NOTHING;
  const upload = bodies.memory.begin(clock.steadyNow());
  request.client.on(() => upload.end());
  let stalled = false;
  try {
    // The memory is reserved in one step, because bodies that each hold a part and wait for the rest would deadlock.
    const most = Number.isNaN(size.declared) ? size.limit : size.declared;
    await waitForRoom(upload, Math.min(most, RETRY_BODY_MIN_BYTES), clock);
    const pace = new BodyPace(bodies.stallMs, clock);
    return await readPieces(reader, { most, limit: size.limit }, share, { upload, clock, pace });
  } catch (error) {
    stalled = error instanceof ApiError && error.code === 'request_timeout';
    throw error;
  } finally {
    upload.end();
    // The rest of a refused body is read by `discardBody`. A client that stalled sends no rest, so its body is
    // cancelled.
    if (stalled) reader.cancel().catch(() => {});
    else reader.release();
  }
}

interface Progress {
  upload: BodyReservation;
  clock: HostClock;
  pace: BodyPace;
}

async function readPieces(
  reader: BodyReader,
  { most, limit }: { most: number; limit: number },
  share: BudgetShare | undefined,
  progress: Progress,
): Promise<Uint8Array> {
  let bytes = NOTHING;
  let length = 0;
  for (;;) {
    const piece = await nextPiece(reader, progress);
    if (piece === undefined) return bytes.subarray(0, length);
    const needed = length + piece.length;
    if (needed > limit) throw tooLarge(limit);
    if (needed > bytes.length) {
      const size = Math.max(needed, Math.min(most, Math.max(FIRST_BYTES, bytes.length * 2)));
      share?.claim(size - RETRY_BODY_MIN_BYTES);
      const grown = new Uint8Array(size);
      grown.set(bytes.subarray(0, length));
      bytes = grown;
    }
    bytes.set(piece, length);
    length = needed;
    progress.upload.received(piece.length, progress.clock.steadyNow());
  }
}

/**
 * Waits until the body may hold `bytes`. Meanwhile the connection's flow control slows the client down. @throws
 * ApiError 408, 503
 */
async function waitForRoom(upload: BodyReservation, bytes: number, clock: HostClock): Promise<void> {
  for (let waitedMs = 0; !upload.hold(bytes, clock.steadyNow()); waitedMs += ROOM_EVERY_MS) {
    if (waitedMs >= ROOM_WITHIN_MS) {
      throw new ApiError('server_is_overloaded', 'Too many request bodies are arriving; try again shortly.');
    }
    await new Promise<void>((resolve) => void clock.after(ROOM_EVERY_MS, resolve));
  }
  if (upload.givenUp) throw tooSlow();
}

/** @throws ApiError 400 if the body breaks off; 408 if it arrives too slowly, or was dropped to free memory */
async function nextPiece(reader: BodyReader, { upload, pace }: Progress): Promise<Uint8Array | undefined> {
  const look = () => {
    if (upload.givenUp) throw tooSlow();
  };
  // In workerd one request cannot wake another request. So each body checks periodically whether it was dropped.
  const piece = await pace.next(reader.read(), POLL_MS, look);
  look();
  return piece;
}

function tooSlow(): ApiError {
  return new ApiError('request_timeout', 'The request body arrived too slowly while other requests waited for memory.');
}

function tooLarge(limit: number): ApiError {
  const mib = Math.floor(limit / 1024 / 1024);
  return new ApiError(
    'request_too_large',
    `The request body is larger than ${mib} MiB. Name the model in x-otela-model to stream a body of any size.`,
  );
}
