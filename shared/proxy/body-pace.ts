/** Drops a body that stalls or nearly stalls: it holds memory that others wait for, and a connection. */
import { timesOut } from '../collections/start-timer.ts';
import { ApiError } from '../openai/api-errors.ts';
import type { HostClock } from './proxy-host.ts';

/** Default of gateways and ingresses. */
export const BODY_STALL_MS = 30_000;

/**
 * The rate of Apache's RequestReadTimeout, 500 bytes a second: half the rate of the worst line that people send bodies
 * on.
 */
const BYTES_PER_MS_MIN = 0.5;

type PaceClock = Pick<HostClock, 'steadyNow' | 'after'>;

/**
 * How much longer a body's reader waits: at most `stallMs`, a second less for each second of waiting, a second more for
 * each 500 bytes. So a body fails if it arrives more slowly than that for `stallMs`. Time without a pending read does
 * not count.
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
   * Waits for the pending piece of the body. Calls `look` every `lookMs` meanwhile; it may throw.
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
  const message = `Less than ${1_000 * BYTES_PER_MS_MIN} bytes a second came of the request body for ${stallMs / 1_000} s.`;
  return new ApiError('request_timeout', message);
}

/** Malformed chunks, or fewer bytes than declared (RFC 9112 §6.3, §7.1). */
function broken(cause: unknown): never {
  throw new ApiError('invalid_request', 'The request body breaks off, or its chunks are malformed.', { cause });
}

function ignore(): void {}
