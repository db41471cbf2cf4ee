import { Budget, type Share } from '../../shared/asking/budget.ts';
import { type Intake, lookInto, requirePlain, unseen } from '../../shared/asking/intake.ts';
import { isSlower } from '../../shared/asking/is-slower.ts';
import { OpaqueBody } from '../../shared/asking/opaque-body.ts';
import { PieceReader } from '../../shared/asking/piece-reader.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { after } from '../after.ts';
import type { Env } from '../env.ts';
import type { HttpRequest } from '../http.ts';

/** Always kept for a retry, whatever the budget. */
export const KEPT_ALWAYS_BYTES = 1024 * 1024;
const BUDGET_DEFAULT_BYTES = 48 * 1024 * 1024;
const LIMIT_DEFAULT_BYTES = 32 * 1024 * 1024 + KEPT_ALWAYS_BYTES;

/** A body of which nothing comes for so long is given up: what was read of it is room that others wait for. */
const STALL_DEFAULT_MS = 30_000;

/** Bytes above 1 MiB per body that this isolate keeps now. */
const kept = new Budget(BUDGET_DEFAULT_BYTES);

/**
 * Reads and looks into a body, once. With `x-otela-model` it is not looked into and not read before a node is found; above 1 MiB
 * it streams.
 * @throws ApiError 400, 408, 413, 415, 503 server_is_overloaded when the isolate keeps too much already.
 */
export async function takeBody(request: HttpRequest, endpoint: Endpoint, env: Env): Promise<Intake> {
  const declared = Number(request.headers.get('content-length') ?? Number.NaN);
  requirePlain(request.headers.get('content-encoding'));
  const opaqueModel = request.headers.get('x-otela-model');
  if (opaqueModel !== null) return takeOpaque(request, endpoint, opaqueModel, declared);
  const limit = Number(env.BODY_LIMIT_BYTES ?? LIMIT_DEFAULT_BYTES);
  if (declared > limit) throw tooLarge(limit);
  checkType(request, endpoint);
  const body = await keep(request, declared, limit, env);
  try {
    const known = lookInto(body.bytes, request.headers.get('content-type') ?? '', endpoint);
    return { ...known, body: { kind: 'kept', bytes: body.bytes }, release: body.release };
  } catch (error) {
    body.release();
    throw error;
  }
}

function takeOpaque(request: HttpRequest, endpoint: Endpoint, model: string, declared: number): Intake {
  if (model === '' || model.length > 256) {
    throw new ApiError('invalid_request', 'x-otela-model must name a model.', { param: 'x-otela-model' });
  }
  const known = { ...unseen(endpoint, model, request.headers.get('x-otela-stream')), release: () => {} };
  if (request.body !== null && !(declared <= KEPT_ALWAYS_BYTES)) {
    const length = Number.isNaN(declared) ? undefined : declared;
    return { ...known, body: { kind: 'opaque', opaque: new OpaqueBody(request.body), length } };
  }
  const intake: Intake = { ...known, body: { kind: 'kept', bytes: new Uint8Array(0) } };
  let reading: Promise<void> | undefined;
  const read = async () => {
    intake.body = { kind: 'kept', bytes: await whole(request) };
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
  if (declared <= KEPT_ALWAYS_BYTES) {
    return { bytes: await whole(request), release: () => {} };
  }
  const share = kept.share(Number(env.BODY_BUDGET_BYTES ?? BUDGET_DEFAULT_BYTES));
  if (!Number.isNaN(declared)) share.requireRoom(declared - KEPT_ALWAYS_BYTES);
  // A client that leaves ends this request where it stands: no `finally` runs then, this does.
  request.signal.addEventListener('abort', () => share.release());
  try {
    const bounds = {
      most: Number.isNaN(declared) ? limit : declared,
      limit,
      stallMs: Number(env.BODY_STALL_MS ?? STALL_DEFAULT_MS),
    };
    const bytes = await readBounded(request, bounds, share);
    return { bytes, release: () => share.release() };
  } catch (error) {
    share.release();
    throw error;
  }
}

async function whole(request: HttpRequest): Promise<Uint8Array> {
  try {
    return new Uint8Array(await request.arrayBuffer());
  } catch (cause) {
    return refuseBroken(cause);
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
}

/** Memory grows with what comes, not with what is announced. */
async function readBounded(request: HttpRequest, { most, limit, stallMs }: Bounds, share: Share): Promise<Uint8Array> {
  if (request.body === null) return new Uint8Array(0);
  let bytes = new Uint8Array(KEPT_ALWAYS_BYTES);
  let length = 0;
  const reader = new PieceReader(request.body);
  let stalled = false;
  try {
    for (;;) {
      const next = reader.read().catch(refuseBroken);
      stalled = await isSlower(next, stallMs, after);
      if (stalled) throw stalledFor(stallMs);
      const value = await next;
      if (value === undefined) return bytes.subarray(0, length);
      const needed = length + value.length;
      if (needed > limit) throw tooLarge(limit);
      if (needed > bytes.length)
        bytes = larger(bytes, length, Math.max(needed, Math.min(most, bytes.length * 2)), share);
      bytes.set(value, length);
      length = needed;
    }
  } finally {
    // What is left of a body that is refused is read by whoever answers; but of one that stalls nothing comes.
    if (stalled) void reader.cancel().catch(() => {});
    else reader.release();
  }
}

function stalledFor(ms: number): ApiError {
  return new ApiError('request_timeout', `Nothing came of the request body for ${ms / 1_000} s.`);
}

function larger(bytes: Uint8Array, length: number, size: number, share: Share): Uint8Array<ArrayBuffer> {
  share.claim(size - KEPT_ALWAYS_BYTES);
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
