/** Bodies that the router's routes read. They stand under the same rule as those of requests to models. */
import { concat } from '../../shared/collections/concat.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { BODY_STALL_MS, BodyPace } from '../../shared/proxy/body-pace.ts';
import type { BodyReader } from '../../shared/proxy/message.ts';
import { PieceReader } from '../../shared/upstream/piece-reader.ts';
import type { Env } from '../env.ts';
import { waitClock } from '../platform/wait-clock.ts';
import type { HttpRequest } from './http-request.ts';

type BodyEnv = Pick<Env, 'BODY_STALL_MS'>;

/** What a route's context has of it. */
export interface BodyContext {
  req: { raw: Pick<HttpRequest, 'headers' | 'body' | 'pieces'> };
  env: BodyEnv;
}

export function bodyStallMs({ BODY_STALL_MS: set }: BodyEnv): number {
  return Number(set ?? BODY_STALL_MS);
}

/**
 * A body as it comes. What is left of it where its reader stops may be read by another one.
 * @throws ApiError 408 if it comes too slowly for BODY_STALL_MS, 400 if it breaks off
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
    // A body that stands still brings nothing more, and has a read of its reader's open.
    if (standing) void reader.cancel().catch(() => {});
    else reader.release();
  }
}

/** @throws ApiError 408, 400; 413 above `maxBytes`: counted is what really arrives, content-length may be absent or wrong */
export async function readBodyBytes(c: BodyContext, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of readBodyPieces(c)) {
    bytes += piece.length;
    if (bytes > maxBytes) throw new ApiError('request_too_large', `This body may have ${maxBytes} bytes at most.`);
    pieces.push(piece);
  }
  return concat(pieces);
}

function readerOf(request: BodyContext['req']['raw']): BodyReader | undefined {
  // Where the host has pieces, asking for `body` would make a stream that reads them.
  const iterator = request.pieces?.();
  if (iterator === undefined) {
    const { body } = request;
    return body === null || body.locked ? undefined : new PieceReader(body);
  }
  return {
    read: async () => (await iterator.next()).value,
    // The answer goes out by the same socket: it stays open.
    cancel: async () => {},
    release: () => void iterator.return?.(),
  };
}
