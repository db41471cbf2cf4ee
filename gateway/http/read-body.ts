/**
 * Reads the bodies of requests that the router handles. These bodies have the same stall limit as bodies of requests to
 * models.
 */

import { PieceReader } from '../../shared/attempts/piece-reader.ts';
import { concat } from '../../shared/collections/concat.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { BODY_STALL_MS, BodyPace } from '../../shared/proxy/body-pace.ts';
import type { BodyReader } from '../../shared/proxy/proxy-http-types.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { Env } from '../env.ts';
import { environmentNumber } from '../environment-checks.ts';
import { waitClock } from '../platform/wait-clock.ts';
import type { HttpRequest } from './http-request.ts';

type BodyEnv = Pick<Env, 'BODY_STALL_MS'>;

/** The members of a route's context that these functions read. */
export interface BodyContext {
  req: { raw: Pick<HttpRequest, 'headers' | 'body' | 'pieces'> };
  env: BodyEnv;
}

export function bodyStallMs(env: BodyEnv): number {
  return environmentNumber(env, 'BODY_STALL_MS') ?? BODY_STALL_MS;
}

/**
 * Yields a body in pieces. If the reader stops early, another reader can read the rest.
 * @throws ApiError 408 if the body is too slow for BODY_STALL_MS, 400 if it is cut
 */
export async function* readBodyPieces({ req, env }: BodyContext): AsyncGenerator<Uint8Array, undefined> {
  const reader = readerOf(req.raw);
  if (reader === undefined) return;
  const pace = new BodyPace(bodyStallMs(env), { steadyNow: () => waitClock.now(), after: waitClock.after });
  let standing = true;
  try {
    for (;;) {
      const piece = await pace.next(reader.read());
      if (piece === undefined) break;
      standing = false;
      yield piece;
      standing = true;
    }
    standing = false;
  } finally {
    // If a read is still in progress (the body stalled), the reader cannot be released, so it is canceled.
    if (standing) reader.cancel().catch(() => {});
    else reader.release();
  }
}

/**
 * @throws ApiError 408, 400; 413 above `maxBytes`, counted in received bytes, because content-length may be absent or
 * wrong
 */
export async function readBodyBytes(c: BodyContext, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of readBodyPieces(c)) {
    bytes += piece.length;
    if (bytes > maxBytes) throw new ApiError('request_too_large', `This body may have at most ${maxBytes} bytes.`);
    pieces.push(piece);
  }
  return concat(pieces);
}

function readerOf(request: BodyContext['req']['raw']): BodyReader | undefined {
  // If the host provides pieces, the property `body` is not read, because its getter would create a stream.
  const iterator = request.pieces?.();
  if (iterator === undefined) {
    const { body } = request;
    return body === null || body.locked ? undefined : new PieceReader(body);
  }
  return {
    read: async () => (await iterator.next()).value,
    // The response uses the same socket, so the socket is not closed.
    cancel: async () => {},
    release: () => neverRejects(iterator.return?.()),
  };
}
