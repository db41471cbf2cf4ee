/** Ends a body that stalls or nearly stalls, because it uses a connection, and memory for which other bodies wait. */

import { ApiError } from '../openai/api-errors.ts';
import { timesOut } from '../timing/start-timer.ts';
import type { HostClock } from './proxy-host.ts';

/** Default of `stallMs` at gateways and ingresses. */
export const BODY_STALL_MS = 30_000;

/**
 * Minimum rate, as in Apache's RequestReadTimeout: 500 bytes a second, half the rate of the slowest connection that
 * people use.
 */
const BYTES_PER_MS_MIN = 0.5;

type PaceClock = Pick<HostClock, 'steadyNow' | 'after'>;

/**
 * A body has a time credit of `stallMs`. Waiting for the client reduces the credit, and each 500 bytes restore one
 * second, up to `stallMs`. If no credit is left, the body fails. Time in which nothing reads the body does not count.
 */
export class BodyPace {
  readonly #stallMs: number;
  readonly #clock: PaceClock;
  #remainingMs: number;

  constructor(stallMs: number, clock: PaceClock) {
    this.#stallMs = stallMs;
    this.#clock = clock;
    this.#remainingMs = stallMs;
  }

  /**
   * Waits for the pending piece of the body. Meanwhile calls `look` every `lookMs`; an error that `look` throws ends
   * the wait.
   * @throws ApiError 408 if the body arrives too slowly, 400 if it breaks off
   */
  async next<T extends Uint8Array | undefined>(piece: Promise<T>, lookMs = this.#stallMs, look = ignore): Promise<T> {
    const clock = this.#clock;
    const from = clock.steadyNow();
    const until = from + this.#remainingMs;
    for (let now = from; await timesOut(piece, Math.min(until - now, lookMs), clock.after); ) {
      now = clock.steadyNow();
      if (now >= until) throw tooSlow(this.#stallMs);
      look();
    }
    const came = await piece.catch(broken);
    const earnedMs = (came?.length ?? 0) / BYTES_PER_MS_MIN;
    this.#remainingMs = Math.min(this.#stallMs, until - clock.steadyNow() + earnedMs);
    return came;
  }
}

function tooSlow(stallMs: number): ApiError {
  const message = `Less than ${1_000 * BYTES_PER_MS_MIN} bytes per second of the request body arrived for ${stallMs / 1_000} s.`;
  return new ApiError('request_timeout', message);
}

/** Throws the error for a body with malformed chunks, or with fewer bytes than declared (RFC 9112 §6.3, §7.1). */
function broken(cause: unknown): never {
  throw new ApiError('invalid_request', 'The request body breaks off, or its chunks are malformed.', { cause });
}

function ignore(): void {}
