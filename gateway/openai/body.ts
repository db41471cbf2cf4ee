import { isSlower } from '../../shared/collections/timer.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { BodyMemory, type BodyReservation } from '../../shared/proxy/body-memory.ts';
import { type BudgetShare, ByteBudget } from '../../shared/upstream/byte-budget.ts';
import { OpaqueBody } from '../../shared/upstream/opaque-body.ts';
import {
  opaqueFields,
  type ParsedRequest,
  parseBody,
  requireIdentityEncoding,
} from '../../shared/upstream/parsed-request.ts';
import { PieceReader } from '../../shared/upstream/piece-reader.ts';
import { after } from '../after.ts';
import type { Env } from '../env.ts';
import type { HttpRequest } from '../http.ts';

/** Always kept for a retry, whatever the budget. */
export const KEPT_ALWAYS_BYTES = 1024 * 1024;
const BUDGET_DEFAULT_BYTES = 48 * 1024 * 1024;
const LIMIT_DEFAULT_BYTES = 32 * 1024 * 1024 + KEPT_ALWAYS_BYTES;

/** A body of which nothing comes for so long is given up: what was read of it is room that others wait for. */
const STALL_DEFAULT_MS = 30_000;
/** How soon a body that stands still notices that its time is up. */
const LOOK_EVERY_MS = 1_000;

/** Of bodies that are on their way in, up to 1 MiB of each: above this they wait for one another, and those that stand still give way. */
const UPLOADS_DEFAULT_BYTES = 32 * 1024 * 1024;
/** Self-hosted: the process has more memory than Cloudflare's 128 MiB. */
const UPLOADS_STANDALONE_BYTES = 128 * 1024 * 1024;
/** How soon a body that waits for room sees that there is some. Hundreds may wait, and each look goes through all of them. */
const ROOM_EVERY_MS = 100;
/** So long it waits, then 503: SDKs give up a request that is not taken after a minute. */
const ROOM_WITHIN_MS = 30_000;
/** Memory for the first bytes of a body. */
const FIRST_BYTES = 16 * 1024;

/** Bytes above 1 MiB per body that this isolate keeps now. */
const kept = new ByteBudget(BUDGET_DEFAULT_BYTES);
/** The bodies that this isolate is reading. */
let uploads: BodyMemory | undefined;

/**
 * Reads and looks into a body, once. With `x-otela-model` it is not looked into and not read before a node is found; above 1 MiB
 * it streams.
 * @throws ApiError 400, 408, 413, 415, 503 server_is_overloaded when the isolate keeps too much already.
 */
export async function takeBody(request: HttpRequest, endpoint: Endpoint, env: Env): Promise<ParsedRequest> {
  const declared = Number(request.headers.get('content-length') ?? Number.NaN);
  requireIdentityEncoding(request.headers.get('content-encoding'));
  const opaqueModel = request.headers.get('x-otela-model');
  if (opaqueModel !== null) return takeOpaque(request, endpoint, opaqueModel, declared, env);
  const limit = Number(env.BODY_LIMIT_BYTES ?? LIMIT_DEFAULT_BYTES);
  if (declared > limit) throw tooLarge(limit);
  checkType(request, endpoint);
  const body = await keep(request, declared, limit, env);
  try {
    const known = parseBody(body.bytes, request.headers.get('content-type') ?? '', endpoint);
    return { ...known, body: { kind: 'kept', bytes: body.bytes }, release: body.release };
  } catch (error) {
    body.release();
    throw error;
  }
}

function takeOpaque(
  request: HttpRequest,
  endpoint: Endpoint,
  model: string,
  declared: number,
  env: Env,
): ParsedRequest {
  if (model === '' || model.length > 256) {
    throw new ApiError('invalid_request', 'x-otela-model must name a model.', { param: 'x-otela-model' });
  }
  const known = { ...opaqueFields(endpoint, model, request.headers.get('x-otela-stream')), release: () => {} };
  if (request.body !== null && !(declared <= KEPT_ALWAYS_BYTES)) {
    const length = Number.isNaN(declared) ? undefined : declared;
    return { ...known, body: { kind: 'opaque', opaque: new OpaqueBody(request.body), length } };
  }
  const intake: ParsedRequest = { ...known, body: { kind: 'kept', bytes: new Uint8Array(0) } };
  let reading: Promise<void> | undefined;
  const read = async () => {
    const bounds = boundsOf(declared, KEPT_ALWAYS_BYTES, env);
    intake.body = { kind: 'kept', bytes: await readBounded(request, bounds, undefined) };
  };
  intake.fill = () => {
    reading ??= read();
    return reading;
  };
  return intake;
}

function checkType(request: HttpRequest, endpoint: Endpoint): void {
  const multipart = /^multipart\/form-data\b/i.test(request.headers.get('content-type') ?? '');
  if (endpoint.body === 'multipart' && !multipart) {
    throw new ApiError('unsupported_media_type', `${endpoint.path} takes multipart/form-data.`);
  }
}

interface Kept {
  bytes: Uint8Array;
  release(): void;
}

async function keep(request: HttpRequest, declared: number, limit: number, env: Env): Promise<Kept> {
  const most = Number.isNaN(declared) ? limit : declared;
  if (declared <= KEPT_ALWAYS_BYTES) {
    const bytes = await readBounded(request, boundsOf(most, limit, env), undefined);
    return { bytes, release: () => {} };
  }
  const share = kept.share(Number(env.BODY_BUDGET_BYTES ?? BUDGET_DEFAULT_BYTES));
  if (!Number.isNaN(declared)) share.requireRoom(declared - KEPT_ALWAYS_BYTES);
  // A client that leaves ends this request where it stands: no `finally` runs then, this does.
  request.signal.addEventListener('abort', () => share.release());
  try {
    const bytes = await readBounded(request, boundsOf(most, limit, env), share);
    return { bytes, release: () => share.release() };
  } catch (error) {
    share.release();
    throw error;
  }
}

/** Chunks that are none, or fewer bytes than were announced (RFC 9112 §6.3, §7.1). */
function refuseBroken(cause: unknown): never {
  throw new ApiError('invalid_request', 'The request body breaks off, or its chunks are malformed.', { cause });
}

interface Bounds {
  /** Bytes that it announces, or `limit`. */
  most: number;
  limit: number;
  stallMs: number;
  uploads: BodyMemory;
}

function boundsOf(most: number, limit: number, env: Env): Bounds {
  const uploadsDefault = env.OBJECTS_STAY === 'on' ? UPLOADS_STANDALONE_BYTES : UPLOADS_DEFAULT_BYTES;
  uploads ??= new BodyMemory(Number(env.BODY_UPLOADS_BYTES ?? uploadsDefault));
  return { most, limit, stallMs: Number(env.BODY_STALL_MS ?? STALL_DEFAULT_MS), uploads };
}

/**
 * Memory grows with what comes, not with what is announced. `share` pays for what is above 1 MiB; up to there the body has a place among
 * the uploads until it is whole.
 */
async function readBounded(request: HttpRequest, bounds: Bounds, share: BudgetShare | undefined): Promise<Uint8Array> {
  if (request.body === null) return new Uint8Array(await request.arrayBuffer());
  const upload = bounds.uploads.begin(Date.now());
  // As with the share: no `finally` runs where the client has left.
  request.signal.addEventListener('abort', () => upload.end());
  const reader = new PieceReader(request.body);
  let stalled = false;
  try {
    // All of it at once: bodies that hold a part each and wait for the rest would wait for one another.
    await room(upload, Math.min(bounds.most, KEPT_ALWAYS_BYTES));
    return await readPieces(reader, bounds, upload, share);
  } catch (error) {
    stalled = error instanceof ApiError && error.code === 'request_timeout';
    throw error;
  } finally {
    upload.end();
    // The rest of a refused body is read by the code that answers. Nothing more comes of a stalled one.
    if (stalled) void reader.cancel().catch(() => {});
    else reader.release();
  }
}

async function readPieces(
  reader: PieceReader,
  { most, limit, stallMs }: Bounds,
  upload: BodyReservation,
  share: BudgetShare | undefined,
): Promise<Uint8Array> {
  let bytes = new Uint8Array(0);
  let length = 0;
  for (;;) {
    const value = await nextPiece(reader, upload, stallMs);
    if (value === undefined) return bytes.subarray(0, length);
    const needed = length + value.length;
    if (needed > limit) throw tooLarge(limit);
    if (needed > bytes.length) {
      const size = Math.max(needed, Math.min(most, Math.max(FIRST_BYTES, bytes.length * 2)));
      share?.claim(size - KEPT_ALWAYS_BYTES);
      bytes = larger(bytes, length, size);
    }
    bytes.set(value, length);
    length = needed;
    upload.received(value.length, Date.now());
  }
}

/** Waits until `bytes` may be held: meanwhile the client's own connection holds it back. @throws ApiError 408, 503 */
async function room(upload: BodyReservation, bytes: number): Promise<void> {
  for (let waitedMs = 0; !upload.hold(bytes, Date.now()); waitedMs += ROOM_EVERY_MS) {
    if (waitedMs >= ROOM_WITHIN_MS) throw tooManyUploads();
    await new Promise<void>((resolve) => void after(ROOM_EVERY_MS, resolve));
  }
  if (upload.givenUp) throw tooSlow();
}

/** @throws ApiError 408 where nothing comes, or this body made room for others. */
async function nextPiece(
  reader: PieceReader,
  upload: BodyReservation,
  stallMs: number,
): Promise<Uint8Array | undefined> {
  const next = reader.read().catch(refuseBroken);
  // Looked at, not told: in workerd one request cannot wake another.
  for (let waitedMs = 0; await isSlower(next, LOOK_EVERY_MS, after); ) {
    waitedMs += LOOK_EVERY_MS;
    if (waitedMs >= stallMs) throw stalledFor(stallMs);
    if (upload.givenUp) throw tooSlow();
  }
  if (upload.givenUp) throw tooSlow();
  return next;
}

function stalledFor(ms: number): ApiError {
  return new ApiError('request_timeout', `Nothing came of the request body for ${ms / 1_000} s.`);
}

function tooSlow(): ApiError {
  return new ApiError('request_timeout', 'The request body came too slowly while others waited for room.');
}

function tooManyUploads(): ApiError {
  return new ApiError('server_is_overloaded', 'Too many request bodies are on their way in; try again shortly.');
}

function larger(bytes: Uint8Array, length: number, size: number): Uint8Array<ArrayBuffer> {
  const grown = new Uint8Array(size);
  grown.set(bytes.subarray(0, length));
  return grown;
}

function tooLarge(limit: number): ApiError {
  const mib = Math.floor(limit / 1024 / 1024);
  return new ApiError(
    'request_too_large',
    `The request body is larger than ${mib} MiB. Name the model in x-otela-model to stream a body of any size.`,
  );
}
