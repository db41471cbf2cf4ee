/** A body that stands still is given up: what was read of it is room that others wait for, and its connection a place. */
import { type After, isSlower } from '../collections/timer.ts';
import { ApiError } from '../openai/errors.ts';

/** Where no setting says otherwise, at gateways and ingresses. */
export const BODY_STALL_MS = 30_000;

export function bodyStalled(stallMs: number): ApiError {
  return new ApiError('request_timeout', `Nothing came of the request body for ${stallMs / 1_000} s.`);
}

/** Malformed chunks, or fewer bytes than announced (RFC 9112 §6.3, §7.1). */
export function bodyBroken(cause: unknown): ApiError {
  return new ApiError('invalid_request', 'The request body breaks off, or its chunks are malformed.', { cause });
}

/** The next piece of a body. @throws ApiError 408 if nothing comes for `stallMs`, 400 if the body breaks off */
export async function nextWithin<T>(next: Promise<T>, stallMs: number, after: After): Promise<T> {
  if (await isSlower(next, stallMs, after)) throw bodyStalled(stallMs);
  return next.catch((cause: unknown) => {
    throw bodyBroken(cause);
  });
}
